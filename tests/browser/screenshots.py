"""
Takes the docs' pictures of the web view: `make screenshots`. A shop at peace, then one in trouble, each page in both
schemes, and as a phone shows it.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright
from rich.progress import track

from tests.browser.chromium import OPTIONS, find_chromium
from tests.browser.faults import doubled_number, failing_worker, overload, stopped_node
from tests.browser.troubled_shop import TroubledShop
from tests.support import ROOT

IMAGES = ROOT / "docs/images"
#: Seconds of load before the pictures at peace, and of trouble before the others: a node is late after a dozen.
PEACE, TROUBLE = 90, 20
#: What a picture's name ends with → options of its browser.
LOOKS: Mapping[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 360, "height": 740}, "color_scheme": "light"},
}
#: Colours of a picture, where Pillow is there to choose them (it comes with `make bench`): a third of the size.
COLOURS = 128


def main() -> None:
    """Writes docs/images/PAGE-LOOK.png."""
    IMAGES.mkdir(exist_ok=True)
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="shop-"))
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=OPTIONS)
        stack.callback(browser.close)
        shop = stack.enter_context(TroubledShop(Path(directory), browser))
        _wait(PEACE, "letting it run")
        _take(shop, browser, {"peace": "", "peace-nodes": "nodes"})
        for fault in (failing_worker, overload, doubled_number, stopped_node):
            stack.enter_context(fault(shop))
        shop.load.kill()
        _wait(TROUBLE, "letting it fail")
        _take(shop, browser, _pages(shop))


def _wait(seconds: int, what: str) -> None:
    for _ in track(range(seconds), what):
        time.sleep(1)


def _pages(shop: TroubledShop) -> dict[str, str]:
    """Name of a picture → its page."""
    failing = shop.app.queries("failing", shop.app.queues()["failing"])
    job = failing.range_by_retry_count(0)[0]
    return {
        "overview": "",
        "nodes": "nodes",
        "incidents": "incidents",
        "queue": "queues/failing?view=retries",
        "slow": "queues/slow",
        "morgue": "queues/dying?view=morgue",
        "job": f"queues/failing/job?id={job.id}",
        "search": "search?q=sync-*",  # an exact id would open its job
        "bulk-actions": "bulks",
        "help": "help",
    }


def _take(shop: TroubledShop, browser: Browser, pages: dict[str, str]) -> None:
    for look, options in LOOKS.items():
        context = browser.new_context(**options)
        page = context.new_page()
        for name, path in pages.items():
            answer = page.goto(shop.url + path)
            if answer is None or not answer.ok:
                print(f"no picture of /{path}: {answer and answer.status}")
                continue
            page.wait_for_timeout(1500)  # its first ticks
            path_of_picture = IMAGES / f"{name}-{look}.png"
            page.screenshot(path=path_of_picture)
            _shrink(path_of_picture)
        context.close()


def _shrink(path: Path) -> None:
    with contextlib.suppress(ImportError):
        from PIL import Image

        with Image.open(path) as picture:
            fewer = picture.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
        fewer.save(path, optimize=True)


if __name__ == "__main__":
    main()
