"""A queue is paused and resumed from its page, which shows who did so and why."""

from __future__ import annotations

import html
import re
from collections.abc import Callable

import httpx
import pytest
from starlette.applications import Starlette

from lowkiq.web.snapshot import INTERVAL
from tests.queue.shard_driver import ShardDriver
from tests.support import wait_until
from tests.web.conftest import Browser
from tests.web.reading import Html, read, submit


@pytest.fixture
def browser(make_web: Callable[..., Starlette], browse: Callable[..., Browser], driver: ShardDriver) -> Browser:
    driver.push("a")
    return browse(make_web())


def press(browser: Browser, path: str, **fields: str) -> httpx.Response:
    """Presses the button of the page that asks back."""
    question = browser.get(path)
    assert question.status_code == 200, question.text
    hidden = dict(re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)">', question.text))
    given = {name: html.unescape(value) for name, value in hidden.items()} | fields
    return submit(browser, path, *given.items())


def test_it_is_asked_back_done_and_shown(browser: Browser, driver: ShardDriver) -> None:
    assert "Pause q?" in Html(browser.get("/queues/q/pause").text).text
    done = press(browser, "/queues/q/pause", reason="we count <b>")
    assert (done.status_code, done.headers["location"]) == (303, "/queues/q")
    assert "paused" in driver.names()
    text = wait_until(lambda: "paused by" in (page := read(browser, "/queues/q").text) and page, within=10 * INTERVAL)
    assert "Resume" in text
    assert "paused" in read(browser, "/").text
    assert press(browser, "/queues/q/resume").status_code == 303
    assert "paused" not in driver.names()


def test_a_reason_is_shown_as_it_is(browser: Browser, driver: ShardDriver) -> None:
    driver.actions.pause("<b>we count</b>", who="ann")
    wait_until(lambda: "2 held" in browser.get("/queues/q?view=held").text, within=10 * INTERVAL)
    page = browser.get("/queues/q?view=held").text
    listed = page[page.index('id="listed"') :]
    assert "/queues/q/job?id=a" in listed and "/queues/q/job?id=b" not in listed
