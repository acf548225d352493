"""Reading pages as a person does: their words, links, fields and tokens."""

from __future__ import annotations

import html
import re
from html.parser import HTMLParser
from urllib.parse import urlencode

import httpx

from tests.web.conftest import Browser

FORM = {"content-type": "application/x-www-form-urlencoded", "sec-fetch-site": "same-origin"}
#: Elements without a closing tag.
VOID = frozenset({"meta", "link", "input", "br", "hr", "img"})


class Html(HTMLParser):
    """A page, taken apart by the rules by which a browser does it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.source = text
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self._texts: list[str] = []
        self._open: list[str] = []
        self.unbalanced: list[str] = []
        self.feed(text)
        self.close()

    @property
    def text(self) -> str:
        """All words, with single spaces."""
        return " ".join("".join(self._texts).split())

    def all(self, tag: str, **attributes: str) -> list[dict[str, str | None]]:
        """Attributes of each element of that name that has these."""
        wanted = {name.strip("_").replace("_", "-"): value for name, value in attributes.items()}
        return [found for name, found in self.tags if name == tag and wanted.items() <= found.items()]

    def links(self) -> list[str]:
        return [link["href"] or "" for link in self.all("a") if "href" in link]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._texts.append(" ")
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        self._texts.append(" ")
        if not self._open or self._open.pop() != tag:
            self.unbalanced.append(tag)

    def handle_data(self, data: str) -> None:
        self._texts.append(data)


def read(browser: Browser, path: str, status: int = 200, **headers: str) -> Html:
    """Opens a page, which must be well-formed."""
    response = browser.get(path, **headers)
    assert response.status_code == status, response.text
    page = Html(response.text)
    assert page.unbalanced == []
    return page


def token_of(browser: Browser, path: str = "/") -> str:
    """The write token of a page with a form."""
    found = re.search(r'name="token" value="([0-9a-f]+)"', browser.get(path).text)
    assert found is not None, f"no form on {path}"
    return html.unescape(found[1])


def submit(browser: Browser, path: str, *fields: tuple[str, str]) -> httpx.Response:
    """Sends a form as a browser does; fields may come again."""
    return browser.send("POST", path, dict(FORM), content=urlencode(fields).encode())
