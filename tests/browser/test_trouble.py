"""A dead Redis, a slow Redis, a mount under a prefix."""

from __future__ import annotations

import re
import signal

import httpx
import pytest
from fastapi import FastAPI
from playwright.sync_api import expect

from lowkiq.web import create_app
from tests.browser.shop import ASKING, page_paths
from tests.support import wait_until


@pytest.mark.parametrize("how", ["dead", "slow"])
def test_a_redis_that_is_away_is_told_of_and_the_page_recovers_by_itself(own_redis_server, make_app, serve, look, how):
    app = make_app(redis_url=own_redis_server.url)
    url = serve(create_app(app, no_auth=True))
    live = look(url)
    expect(live.locator("#light")).to_have_text("live")
    assert own_redis_server.process
    if how == "dead":
        own_redis_server.stop(signal.SIGKILL)
    else:
        own_redis_server.process.send_signal(signal.SIGSTOP)
    try:
        expect(live.locator("#stale")).to_be_visible()
        assert live.locator("#light").inner_text() != "live", "one page says both"
        expect(live.locator("#light")).to_have_attribute("data-state", "down")
        # Of the second before it went away, pages are still made from what all of them share.
        wait_until(lambda: httpx.get(f"{url}/nodes", timeout=60).status_code == 503)
        fresh = look(f"{url}/nodes")
        expect(fresh.locator("main")).to_contain_text("Redis")
        expect(fresh.locator("main")).to_contain_text(re.compile(r"heard of it last at \d\d:\d\d:\d\d"))
        expect(fresh.locator("#light")).to_have_text("Redis is away")
        assert "Traceback" not in fresh.content()
    finally:
        if how == "dead":
            own_redis_server.start()
        else:
            own_redis_server.process.send_signal(signal.SIGCONT)
    expect(live.locator("#light")).to_have_text("live")
    expect(fresh.get_by_role("heading", level=1)).to_have_text("Nodes")


def test_under_a_prefix_every_page_its_style_and_its_refresh_work(app, serve, look):
    orders = app.worker(queue_name="orders", shards_count=2)(lambda _: None)
    orders.perform_async([{"id": "17", "payload": "x"}])
    site = FastAPI()
    site.mount("/ops/lowkiq", create_app(app, no_auth=True))
    url = serve(site) + "/ops/lowkiq"
    page = look(f"{url}/")
    for path in page_paths("orders", "17"):
        page.goto(url + path)
        expect(page.locator("#light"), path).to_have_text("not live" if path.endswith(ASKING) else "live")
        assert page.evaluate("getComputedStyle(document.querySelector('header.top')).display") == "flex"
        for link in page.locator("a[href], form[action]").all():
            address = link.get_attribute("href") or link.get_attribute("action") or ""
            assert address.startswith(("/ops/lowkiq/", "#")), address
    page.get_by_role("link", name="Overview", exact=True).click()
    page.get_by_role("link", name="orders", exact=True).click()
    page.get_by_role("link", name="17", exact=True).click()
    page.get_by_role("button", name="Delete").click()
    page.locator("main form").get_by_role("button", name="Delete").click()
    expect(page.locator("main")).to_contain_text("No such job")
