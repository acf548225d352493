"""All pages: their size, their colours, their words for people who cannot see them, and without scripts."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import LOOKS
from tests.browser.shop import page_paths
from tests.support import wait_until

PATHS = page_paths("orders", "bad-3")


@pytest.mark.parametrize(("scheme", "width"), LOOKS)
def test_axe_finds_nothing_serious_on_any_page(open_shop, look, examine, scheme, width):
    page = look(open_shop.enter(), color_scheme=scheme, width=width, bypass_csp=True)
    for path in PATHS:
        page.goto(open_shop.url + path)
        examine(page, path)


@pytest.mark.parametrize(("scheme", "width"), LOOKS)
def test_axe_finds_nothing_serious_in_questions_and_messages(open_shop, look, examine, scheme, width):
    page = look(open_shop.enter(), color_scheme=scheme, width=width, bypass_csp=True)
    for button in ("Restart", "Dump"):
        page.goto(f"{open_shop.url}/nodes")
        page.get_by_role("button", name=button).first.click()
        expect(page.get_by_role("link", name="Back", exact=True)).to_be_visible()
        examine(page, f"the question before {button}")
    page.goto(f"{open_shop.url}/queues/orders?view=morgue")
    page.locator('input[name="ids"]').first.check()
    page.locator("#on-selected").get_by_role("button", name="Delete").click()
    expect(page.get_by_role("button", name="Pause")).to_be_hidden()  # a question is not live
    examine(page, "a question")
    page.goto(f"{open_shop.url}/no-such-page")
    examine(page, "a message")


@pytest.mark.parametrize(("scheme", "width"), LOOKS)
def test_axe_finds_nothing_serious_where_news_or_the_session_have_ended(open_shop, look, examine, scheme, width):
    page = look(open_shop.enter(), color_scheme=scheme, width=width, bypass_csp=True)
    page.route("**/*", lambda route: route.abort())
    expect(page.locator("#stale")).to_be_visible()
    expect(page.locator("main")).to_have_css("filter", "grayscale(1)")  # its transition is over
    examine(page, "a stale page")
    other = look(f"{open_shop.url}/sign-in", color_scheme=scheme, width=width, bypass_csp=True)
    examine(other, "signing in")


@pytest.mark.parametrize("width", [360, 1600])
def test_no_page_scrolls_sideways(open_shop, look, width):
    page = look(open_shop.enter(), width=width)
    for path in PATHS:
        page.goto(open_shop.url + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path


@pytest.mark.parametrize("path", ["/", "/queues/orders"])
def test_jobs_come_before_charts(open_shop, look, path):
    """On the screen as in the page: who goes by keys, or is read to, meets what the others see."""
    for width in (360, 1280):
        page = look(open_shop.enter(path), width=width)
        jobs = page.locator("section[aria-labelledby=queues], section[aria-labelledby=jobs]").bounding_box()
        charts = page.locator("section[aria-labelledby=history]").bounding_box()
        assert jobs and charts and jobs["y"] < charts["y"], width


def test_no_number_of_a_tile_is_cut_off(open_shop, look):
    """At the width of a laptop the note on queued jobs lost its end."""
    for width in (360, 1024, 1280):
        page = look(open_shop.enter(), width=width)
        cut = """() => [...document.querySelectorAll(".tile dd *")]
          .filter((each) => each.scrollWidth > each.clientWidth + 1 && getComputedStyle(each).display !== "inline")
          .map((each) => each.textContent)"""
        assert page.evaluate(cut) == [], width


def test_signing_in_begins_in_its_first_field(make_web, serve, look, monkeypatch):
    monkeypatch.setenv("LOWKIQ_WEB_TOKEN", "a-token-of-the-tests")
    page = look(f"{serve(make_web(no_auth=False))}/nodes")
    expect(page.get_by_label("Token")).to_be_focused()
    page.keyboard.type("not that one")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("Wrong token")
    expect(page.get_by_label("Token")).to_be_focused()
    page.keyboard.type("a-token-of-the-tests")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Nodes")


def test_times_are_told_in_the_readers_zone_and_the_page_says_which(open_shop, look):
    page = look(open_shop.enter("/queues/orders/job?id=slow-1"), timezone_id="Asia/Tokyo", locale="en-US")
    expect(page.locator("#zone")).to_contain_text("Asia/Tokyo")
    time = page.locator(".timeline time").first
    expect(time).to_have_text(re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$"))
    expect(time).to_have_attribute("title", re.compile("UTC$"))


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
    page.get_by_role("link", name="Nodes", exact=True).focus()
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


def test_a_traceback_is_opened_read_and_copied_by_keyboard(open_shop, look):
    allowed = ["clipboard-read", "clipboard-write"]
    page = look(open_shop.enter("/queues/orders?view=morgue"), permissions=allowed)
    groups = page.get_by_role("table", name="Jobs by their last error")
    group = groups.locator("tbody tr", has_text="TimeoutError: the ERP did not answer within # s")
    failures = group.locator('[data-label="Failures"]')
    wait_until(lambda: page.reload() and failures.inner_text().isdigit(), "a beat has told of them")
    expect(group.locator('[data-label="First seen"] time')).to_be_visible()
    group.get_by_role("button", name="Revive").click()
    expect(page.get_by_role("main")).to_contain_text("30 jobs of the morgue")
    page.go_back()
    group.locator("a.example").click()
    expect(page.locator("#light")).to_have_text("live")
    expect(page.locator("pre.error")).to_have_text(re.compile("^TimeoutError: the ERP did not answer within [0-9]+ s$"))
    summary, frames = page.get_by_text("Traceback", exact=True), page.get_by_role("region", name="Traceback")
    expect(frames).to_be_hidden()
    summary.focus()
    page.keyboard.press("Enter")
    expect(frames).to_contain_text("in perform")
    expect(frames).to_contain_text("raise TimeoutError(")
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Copy")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#copied")).to_have_text("Copied")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("Traceback (most recent call last):\n  File ")
    assert copied.splitlines()[-1].startswith("TimeoutError: the ERP did not answer within ")
    for _ in range(6):  # the part of the job comes anew with every fifth
        with page.expect_response(lambda response: "x-lowkiq-live" in response.request.headers):
            pass
    expect(frames).to_be_visible()
    expect(page.locator("#copied")).to_be_empty()
    unscripted = look(open_shop.enter(f"/queues/orders/job?id={copied_id(page)}"), java_script_enabled=False)
    unscripted.get_by_text("Traceback", exact=True).click()
    expect(unscripted.get_by_role("region", name="Traceback")).to_be_visible()
    expect(unscripted.get_by_role("button", name="Copy")).to_have_count(0)


def copied_id(page):
    return page.url.partition("id=")[2]


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
