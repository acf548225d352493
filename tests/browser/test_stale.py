"""Staleness: whatever keeps news from a page, the page says so within five seconds, and comes back by itself."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import threading

import pytest
from playwright.sync_api import APIResponse, Page, expect

from lowkiq.web import create_app, snapshot
from lowkiq.web.pages import live
from tests.browser.conftest import PATIENCE
from tests.browser.silent import SilentProxy
from tests.support import free_port, wait_until

expect.set_options(timeout=PATIENCE)

#: A page that a proxy gives while nobody else answers: with an icon, as pages have.
BACK_SOON = '<!doctype html><link rel="icon" href="data:,"><title>Back soon</title><main>We are back soon.</main>'

SERVER = """
import os, sys, uvicorn
from lowkiq import Lowkiq
from lowkiq.web import create_app
uvicorn.run(create_app(Lowkiq(redis_url=sys.argv[1]), no_auth=True), port=int(sys.argv[2]), log_level="error")
"""


def expect_live(page: Page) -> None:
    expect(page.locator("#light")).to_have_text("live")
    expect(page.locator("#stale")).to_be_hidden()
    expect(page.locator("html")).not_to_have_attribute("data-stale", "")
    assert "icon-stale" not in (page.locator("link[rel=icon]").get_attribute("href") or "")


def expect_stale(page: Page, cause: str) -> None:
    """In words, colour, title and icon."""
    expect(page.locator("#stale")).to_be_visible()
    expect(page.locator("#stale")).to_contain_text(re.compile(r"nothing new since \d\d:\d\d:\d\d \(\d+ s ago\)"))
    expect(page.locator("#stale")).to_contain_text(cause)
    expect(page).to_have_title(re.compile(r"^Stale since \d\d:\d\d:\d\d · .*Lowkiq$"))
    expect(page.locator("link[rel=icon]")).to_have_attribute("href", re.compile("icon-stale"))
    assert "grayscale" in page.evaluate("getComputedStyle(document.querySelector('main')).filter")
    expect(page.locator("#light")).to_have_attribute("data-state", "down")


@pytest.mark.parametrize("how", ["silent", pytest.param("mid-body", marks=pytest.mark.long)])
def test_a_proxy_that_falls_silent(make_web, serve, look, how):
    with SilentProxy(serve(make_web())) as proxy:
        page = look(proxy.url)
        expect_live(page)
        proxy.how = how
        expect_stale(page, "does not answer")
        proxy.recover()
        expect_live(page)
        expect(page).to_have_title(re.compile("Overview"))


@pytest.mark.long
def test_a_server_that_is_frozen_and_one_whose_supervisor_is_dead(redis_server, look):
    port = free_port()
    command = [sys.executable, "-c", SERVER, redis_server.url, str(port)]

    def start() -> subprocess.Popen[bytes]:
        server = subprocess.Popen(command)
        wait_until(lambda: _answers(port))
        return server

    server = start()
    try:
        page = look(f"http://127.0.0.1:{port}")
        expect_live(page)
        server.send_signal(signal.SIGSTOP)
        expect_stale(page, "does not answer: it may be frozen")
        server.send_signal(signal.SIGCONT)
        expect_live(page)
        server.kill()
        server.wait(30)
        expect_stale(page, "its supervisor may have stopped")
        server = start()
        expect_live(page)
    finally:
        server.kill()
        server.wait(30)


@pytest.mark.long
def test_a_redis_that_hangs_and_one_that_is_gone(own_redis_server, make_app, serve, look):
    page = look(serve(create_app(make_app(redis_url=own_redis_server.url), token="a-token-of-the-tests")))
    page.locator('input[type="password"]').fill("a-token-of-the-tests")
    page.get_by_role("button", name="Sign in").click()
    expect_live(page)
    assert own_redis_server.process
    own_redis_server.process.send_signal(signal.SIGSTOP)
    try:
        expect_stale(page, "Redis")
        expect(page.locator("#light")).to_have_text("Redis is away")
        expect(page.locator("#stale")).to_contain_text("does not answer")
    finally:
        own_redis_server.process.send_signal(signal.SIGCONT)
    expect_live(page)
    own_redis_server.stop(signal.SIGKILL)
    expect_stale(page, "Redis at")
    own_redis_server.start()
    expect_live(page)


def test_a_stranger_that_answers_in_the_place_of_the_view_and_one_that_repeats_it(make_web, serve, look):
    """A maintenance page, or what a cache has kept, is an answer, but no news."""
    page = look(serve(make_web()))
    expect_live(page)
    page.route("**/*", lambda route: route.fulfill(body=BACK_SOON, content_type="text/html"))
    expect_stale(page, "Something else answers in the place of the web view")
    page.unroute("**/*")
    expect_live(page)
    kept: list[APIResponse] = []
    page.route("**/*", lambda route: route.fulfill(response=(kept or kept.append(route.fetch()) or kept)[0]))
    expect_stale(page, "answers what it has answered before")
    page.unroute("**/*")
    expect_live(page)


@pytest.mark.long
def test_a_picture_that_grows_old_though_the_server_answers(make_web, serve, look, monkeypatch):
    """The whole page says it by itself too, without scripts."""
    url = serve(make_web())
    page, bare = look(url), look(url, java_script_enabled=False)
    expect_live(page)
    expect(bare.locator("#stale")).to_be_hidden()
    goes_on, poll = threading.Event(), snapshot._Poll.__call__
    monkeypatch.setattr(snapshot, "OLDEST", 1_000)
    monkeypatch.setattr(live, "PATIENCE", 0.5)
    monkeypatch.setattr(snapshot._Poll, "__call__", lambda self: goes_on.wait(60) and poll(self))
    expect_stale(page, "too slowly for a new picture")
    bare.reload()
    expect(bare.locator("#stale")).to_contain_text("nothing new since")
    goes_on.set()
    expect_live(page)


def test_a_tab_that_slept_or_stood_in_the_background(make_web, serve, look):
    """A laptop's sleep stops timers and answers, and the clock has gone on when they go on."""
    with SilentProxy(serve(make_web())) as proxy:
        page = look("about:blank")
        page.clock.install()
        page.goto(proxy.url)
        expect_live(page)
        proxy.how = "silent"
        page.clock.fast_forward("08:00:00")
        expect(page.locator("#stale")).to_be_visible()
        expect(page.locator("#stale")).to_contain_text("8 h ago")
        proxy.recover()
        expect_live(page)


def test_a_session_that_has_ended_leads_to_where_one_signs_in(make_web, serve, look):
    page = look(serve(make_web(token="a-token-of-the-tests")))
    page.locator('input[type="password"]').fill("a-token-of-the-tests")
    page.get_by_role("button", name="Sign in").click()
    expect_live(page)
    page.context.clear_cookies()
    expect(page).to_have_url(re.compile("/sign-in"))


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
