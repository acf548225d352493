"""
Ten minutes of a shop with faults on a timetable, as somebody sees them who has nothing but the overview: `make shop`.

Prints a table: the fault, seconds until the page said it, in what words, since when as told, seconds until it was gone.
Ends with 1 if a page kept silent, told of what was not, or did not get quiet again.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from playwright.sync_api import sync_playwright

from tests.browser.chromium import OPTIONS, find_chromium
from tests.browser.faults import FAULTS, MAY_LOSE_NODES, Fault
from tests.browser.troubled_shop import TroubledShop
from tests.browser.watch import Said, Watch, looking

#: Seconds that a page has to say what is wrong, and to be quiet once it is over: shares of failures take their minute.
PATIENCE, UNTIL_QUIET = 60.0, 150.0
#: What else may be said for a moment while a node is away, or comes back.
CONSEQUENCES = r"^(unowned|late queue|late|missing|recycling|supervisor|crash loop)\b"


class Row(NamedTuple):
    """What one page said of one fault."""

    fault: str
    page: str
    said_after: float | None
    words: str
    #: Seconds between the fault's beginning and when it began as told.
    since: float | None
    gone_after: float | None
    besides: Sequence[str]

    @property
    def is_right(self) -> bool:
        return self.said_after is not None and self.gone_after is not None and not self.besides


class Judge:
    """Watches one fault from its beginning to the quiet after it."""

    def __init__(self, shop: TroubledShop, fault: Fault) -> None:
        self.shop, self.fault = shop, fault
        self.began = self.ended = 0.0
        self._first: dict[str, tuple[float, Said]] = {}
        self._quiet: dict[str, float] = {}
        self._besides: dict[str, dict[str, str]] = {watch.name: {} for watch in shop.watches}

    def watch(self) -> list[Row]:
        self._look(lambda: all(watch.seen[-1].is_quiet for watch in self.shop.watches), UNTIL_QUIET, notes=False)
        self.began = time.time()
        with self.fault.happens(self.shop):
            self._look(lambda: len(self._first) == sum(map(bool, self.fault.says)), PATIENCE)
            self._look(lambda: False, self.fault.lasts)
        self.ended = time.time()
        self._look(lambda: len(self._quiet) == len(self.shop.watches), UNTIL_QUIET)
        for watch in self.shop.watches:
            if self.fault.incident not in (told := watch.page_beside("incidents")):
                self._besides[watch.name]["incidents"] = f"no {self.fault.incident} among the incidents: {told[:500]}"
        return [self._row(watch.name, says) for watch, says in zip(self.shop.watches, self.fault.says, strict=True)]

    def _look(self, until: Callable[[], bool], within: float, *, notes: bool = True) -> None:
        for _ in looking(self.shop.watches, until, within):
            if notes:
                for watch, says in zip(self.shop.watches, self.fault.says, strict=True):
                    self._note(watch, says)

    def _note(self, watch: Watch, says: str) -> None:
        seen = watch.seen[-1]
        for said in seen.said:
            if says and _is(says, said):
                self._first.setdefault(watch.name, (seen.at, said))
            elif self.ended and said.key == "stale" and "stale" in says:
                continue  # until there is a new picture it is stale, whatever keeps that from coming
            elif not _is(CONSEQUENCES, said) or self.fault.happens not in MAY_LOSE_NODES:
                self._besides[watch.name].setdefault(said.key, f"{said.text} ({said.since})")
        if self.ended and seen.is_quiet:
            self._quiet.setdefault(watch.name, seen.at)

    def _row(self, name: str, says: str) -> Row:
        quiet, besides = self._quiet.get(name), list(self._besides[name].values())
        gone = None if quiet is None else quiet - self.ended
        if name not in self._first:
            return Row(self.fault.name, name, None if says else 0.0, "", None, gone, besides)
        at, said = self._first[name]
        told = None if said.seconds is None else at - said.seconds - self.began
        return Row(self.fault.name, name, at - self.began, said.text, told, gone, besides)


def _is(pattern: str, said: Said) -> bool:
    return bool(re.search(pattern, f"{said.key} {said.text}"))


def run(shop: TroubledShop, faults: Sequence[Fault], seconds: float) -> Iterator[Row]:
    """Each fault when its part of the time has come, and all is well."""
    began = time.monotonic()
    for number, fault in enumerate(faults):
        at = began + number * seconds / len(faults)
        for _ in looking(shop.watches, lambda: False, at - time.monotonic()):
            pass
        yield from Judge(shop, fault).watch()


def seconds_of(value: float | None) -> str:
    return "never" if value is None else f"{value:.1f} s"


def tell(row: Row) -> None:
    print(
        f"{row.fault}, the {row.page} page: said after {seconds_of(row.said_after)}, gone after "
        f"{seconds_of(row.gone_after)}"
        + (f", as since {row.since:+.0f} s of its beginning" if row.since is not None else "")
    )
    for text in filter(None, [row.words, *(f"BESIDES: {besides}" for besides in row.besides)]):
        print(f"    {text}")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--only", choices=FAULTS, action="append", help="this fault, and others that are named so")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="shop-") as directory, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=OPTIONS)
        with TroubledShop(Path(directory), browser) as shop:
            rows = []
            for row in run(shop, [FAULTS[name] for name in given.only or FAULTS], given.minutes * 60):
                tell(row)
                rows.append(row)
        browser.close()
    wrong = [row for row in rows if not row.is_right]
    print(f"{len(rows) - len(wrong)} of {len(rows)} right")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
