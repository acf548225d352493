"""All pages: their size, their colours, their words for people who cannot see them, and without scripts."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser.shop import page_paths

#: Pinned: a new rule should not break a build by surprise.
AXE = "axe-core@4.10.3"
PATHS = page_paths("orders", "bad-3")


@pytest.fixture(scope="session")
def axe(tmp_path_factory):
    """The source of axe-core, fetched with npm for this run."""
    npm = shutil.which("npm")
    if npm is None:
        message = "no npm on PATH: apt-get install npm"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    directory = tmp_path_factory.mktemp("axe")
    command = [npm, "install", "--no-save", "--no-audit", "--no-fund", "--prefix", str(directory), AXE]
    subprocess.run(command, check=True, capture_output=True, timeout=240)
    return Path(directory, "node_modules/axe-core/axe.min.js").read_text("utf-8")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(open_shop, look, axe, scheme):
    page = look(open_shop.enter(), color_scheme=scheme, bypass_csp=True)
    for path in PATHS:
        page.goto(open_shop.url + path)
        page.evaluate(axe)
        result: Any = page.evaluate("axe.run({resultTypes: ['violations']})")
        serious = [
            (violation["id"], [node["html"][:200] for node in violation["nodes"][:3]])
            for violation in result["violations"]
            if violation["impact"] in {"serious", "critical"}
        ]
        assert serious == [], path


@pytest.mark.parametrize("width", [360, 1600])
def test_no_page_scrolls_sideways(open_shop, look, width):
    page = look(open_shop.enter(), width=width)
    for path in PATHS:
        page.goto(open_shop.url + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path


def test_every_page_reads_without_scripts(open_shop, look):
    page = look(open_shop.enter(), java_script_enabled=False)
    for path in PATHS:
        page.goto(open_shop.url + path)
        expect(page.get_by_role("heading", level=1)).to_have_count(1)
        expect(page.get_by_role("main")).to_be_visible()
    page.goto(f"{open_shop.url}/queues/orders?view=morgue")
    expect(page.locator("tbody tr", has_text="bad-").first).to_be_visible()
    page.goto(open_shop.url)
    expect(page.locator("svg[role=img]").first).to_be_visible()


def test_the_keyboard_reaches_the_content_and_the_navigation(open_shop, look):
    page = look(open_shop.enter())
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("main")).to_be_focused()
    page.get_by_role("link", name="Nodes").focus()
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{open_shop.url}/nodes")


def test_what_somebody_is_at_survives_the_refresh(open_shop, look):
    page = look(open_shop.enter("/queues/orders?view=morgue"))
    expect(page.locator("#light")).to_have_text("live")
    box = page.locator('input[name="ids"][type="checkbox"]').first
    box.check()
    box.focus()
    for _ in range(2):
        with page.expect_response(lambda response: "x-lowkiq-live" in response.request.headers):
            pass
    expect(box).to_be_checked()
    expect(box).to_be_focused()


def test_a_server_that_does_not_answer_is_noticed_until_it_does(open_shop, look):
    page = look(open_shop.enter())
    expect(page.locator("#light")).to_have_text("live")
    page.route("**/*", lambda route: route.abort())
    expect(page.locator("#light")).to_have_text("no answer")
    page.unroute("**/*")
    expect(page.locator("#light")).to_have_text("live")


def test_a_page_can_be_paused(open_shop, look):
    page = look(open_shop.enter())
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#light")).to_have_text("paused")
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("#light")).to_have_text("live")
