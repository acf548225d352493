"""Watch: what somebody reads who sees nothing of a shop but the overview in a browser."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple
from urllib.parse import urljoin

from playwright.sync_api import Page

#: Reads the page as a person does: only what is shown.
READ = """() => {
  const text = (element) => element ? element.innerText.replace(/\\s+/g, " ").trim() : "";
  const stale = document.querySelector("#stale:not([hidden])");
  return {
    title: document.title,
    light: text(document.querySelector("#light")),
    icon: document.querySelector("link[rel=icon]")?.getAttribute("href") ?? "",
    stale: text(stale),
    alerts: [...document.querySelectorAll(".alerts li[data-key]")].map((each) => ({
      key: each.dataset.key,
      says: text(each.querySelector(".says")),
      since: text(each.querySelector(".since")),
      do: text(each.querySelector(".do")),
    })),
  };
}"""
UNITS = {"ms": 0.001, "s": 1, "min": 60, "h": 3600, "d": 86_400}


class Said(NamedTuple):
    """One thing that the page says is wrong."""

    key: str
    text: str
    #: As told: "12 s"; "" if it isn't.
    since: str

    @property
    def seconds(self) -> float | None:
        """How long it has lasted, as told."""
        found = re.findall(r"([\d.,]+) (ms|s|min|h|d)\b", self.since)
        return sum(float(number.replace(",", "")) * UNITS[unit] for number, unit in found) if found else None


class Seen(NamedTuple):
    """The page at a moment."""

    at: float
    title: str
    light: str
    said: list[Said]

    @property
    def is_quiet(self) -> bool:
        """True if somebody who looks thinks that all is well."""
        return not self.said and self.light == "live" and not re.match(r"\(|Stale", self.title)


class Watch:
    """A page that is never loaded again by hand, and all that it has said."""

    def __init__(self, name: str, page: Page) -> None:
        self.name = name
        self._page = page
        self.seen: list[Seen] = []

    def look(self) -> Seen:
        found = self._page.evaluate(READ)
        said = [Said(one["key"], f"{one['says']} {one['do']}", one["since"]) for one in found["alerts"]]
        if found["stale"]:
            since = re.search(r"\(([^)]*) ago\)", found["stale"])
            said = [Said("stale", found["stale"], since[1] if since else "")]  # what is below is of then
        self.seen.append(Seen(time.time(), found["title"], found["light"], said))
        return self.seen[-1]

    def page_beside(self, path: str) -> str:
        """What another page of the view says, which somebody opens and closes again."""
        with self._page.context.new_page() as page:
            page.goto(urljoin(self._page.url, path))
            return page.get_by_role("main").inner_text()


def looking(watches: list[Watch], until: Callable[[], bool], within: float) -> Iterator[list[Seen]]:
    """Looks at all pages, twice a second, until that is so; at most so many seconds."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        yield [watch.look() for watch in watches]
        if until():
            return
        time.sleep(0.5)
