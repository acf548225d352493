"""
Chromium before a real shop: a supervisor of four nodes on its embedded Redis, and its web view.

Without Chromium these tests skip on a laptop and fail in CI.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

from tests.browser.chromium import OPTIONS, find_chromium
from tests.browser.shop import Shop
from tests.support import lacks
from tests.web.conftest import browse, make_web, serve  # noqa: F401 (fixtures)

#: Pinned: a new rule should not break a build by surprise.
AXE = "axe-core@4.10.3"
#: Scheme and width of a page: each of them once, and on request together as they were not.
LOOKS = [
    ("light", 1280),
    ("dark", 360),
    pytest.param("light", 360, marks=pytest.mark.rare),
    pytest.param("dark", 1280, marks=pytest.mark.rare),
]
#: Milliseconds that a page, or what is waited for on it, may take.
PATIENCE = 200_000


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A browser of each file's own: while Playwright runs, no other test of the process could run an event loop."""
    path = find_chromium()
    if path is None:
        message = "no chromium on PATH: apt-get install chromium"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=OPTIONS)
        yield browser
        browser.close()


@pytest.fixture
def look(chromium: Browser) -> Iterator[Callable[..., Page]]:
    """
    look(url, width=…, color_scheme=…, java_script_enabled=…) opens a page of its own. At the end of the test nobody may
    have complained in its console, and nothing may have been asked of another host than those in `hosts`.
    """
    complaints: list[str] = []
    contexts = []

    def open_page(url: str, *, width: int = 1280, height: int = 900, hosts: int = 1, **options: Any) -> Page:
        context = chromium.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        context.set_default_timeout(PATIENCE)
        asked: set[str] = set()

        def note(message: ConsoleMessage) -> None:
            # The browser complains of answers that the tests bring about themselves.
            if message.type == "error" and "the server responded with a status of" not in message.text:
                complaints.append(message.text)

        page = context.new_page()
        page.on("console", note)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: asked.add("/".join(request.url.split("/")[:3])))
        page.on("request", lambda _: complaints.append(f"asked {asked}") if len(asked) > hosts else None)
        page.goto(url)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert [text for text in complaints if "ERR_" not in text] == []


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with Shop(tmp_path) as shop:
        yield shop


@pytest.fixture(scope="module")
def open_shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """One that the tests of a module share: they only look at it."""
    with Shop(tmp_path_factory.mktemp("shop")) as shop:
        shop.fill()
        yield shop


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The source of axe-core, fetched with npm for this run."""
    npm = shutil.which("npm")
    if npm is None:
        lacks("no npm on PATH: apt-get install npm")
    directory = tmp_path_factory.mktemp("axe")
    command = [npm, "install", "--no-save", "--no-audit", "--no-fund", "--prefix", str(directory), AXE]
    subprocess.run(command, check=True, capture_output=True, timeout=240)
    return Path(directory, "node_modules/axe-core/axe.min.js").read_text("utf-8")


@pytest.fixture
def examine(axe: str) -> Callable[[Page, str], None]:
    """examine(page, where) fails if axe-core finds something serious on that page."""

    def examine(page: Page, where: str) -> None:
        page.evaluate(axe)
        result: Any = page.evaluate("axe.run({resultTypes: ['violations']})")
        serious = [
            (violation["id"], [node["html"][:200] for node in violation["nodes"][:3]])
            for violation in result["violations"]
            if violation["impact"] in {"serious", "critical"}
        ]
        assert serious == [], where

    return examine
