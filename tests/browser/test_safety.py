"""Signing in, posts from elsewhere, and what hostile ids and payloads do to a browser: nothing."""

from __future__ import annotations

import re

from playwright.sync_api import expect
from starlette.applications import Starlette
from starlette.responses import HTMLResponse
from starlette.routing import Route

from tests.browser.shop import page_paths
from tests.support import wait_until

HOSTILE = [
    "<script>window.hacked = true</script>",
    "\"'><img src=x onerror=window.hacked=true>",
    "a/../b?c=d#e&f=%00",
    "\u202egnp.exe\u0000\u0007\r\n{{ 7 * 7 }}",
    "x" * 512,
]


def test_who_signs_in_sees_and_who_does_not_does_not(make_web, serve, look):
    url = serve(make_web(token="the-right-token"))
    page = look(f"{url}/nodes")
    expect(page).to_have_url(re.compile("/sign-in"))
    page.locator('input[type="password"]').first.fill("the-wrong-token")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_be_visible()
    page.locator('input[type="password"]').first.fill("the-right-token")
    page.get_by_role("button", name="Sign in").click()
    expect(page).to_have_url(f"{url}/nodes")
    expect(page.locator("#light")).to_have_text("live")
    page.get_by_role("button", name="Sign out").click()
    page.goto(f"{url}/nodes")
    expect(page).to_have_url(re.compile("/sign-in"))


def test_a_post_from_another_site_changes_nothing(app, make_web, serve, look):
    orders = app.worker(queue_name="orders", shards_count=1)(lambda _: None)
    orders.perform_async([{"id": "17"}])
    url = serve(make_web())
    form = f"""<form method="post" action="{url}/queues/orders/actions">
        <input name="action" value="delete"><input name="view" value="due"><input name="ids" value="17">
        <input name="confirmed" value="1"><input name="token" value="guess"><button>Win</button></form>"""
    evil = serve(Starlette(routes=[Route("/", lambda _: HTMLResponse(form))]))
    page = look(evil, hosts=2)
    page.get_by_role("button", name="Win").click()
    expect(page.locator("main")).to_contain_text(re.compile("another site|from elsewhere|not from|site", re.IGNORECASE))
    assert app.metrics()["orders"].length == 1


def test_hostile_ids_and_payloads_are_only_text(app, make_web, serve, look):
    orders = app.worker(queue_name="orders", shards_count=1)(lambda _: None)
    orders.perform_async({"id": id, "payload": {"text": id, "long": "y" * 900_000}} for id in HOSTILE)
    page = look(serve(make_web()) + "/queues/orders")
    links = page.locator("th.id a")
    expect(links).to_have_count(len(HOSTILE))
    for number in range(len(HOSTILE)):
        links.nth(number).click()
        expect(page.locator("ol.payloads li")).to_have_count(1)
        assert len(page.content()) < 100_000
        assert page.evaluate("window.hacked") is None
        page.go_back()


def test_a_hostile_id_can_be_deleted(app, make_web, serve, look):
    orders = app.worker(queue_name="orders", shards_count=1)(lambda _: None)
    orders.perform_async({"id": id} for id in HOSTILE)
    page = look(serve(make_web()) + "/queues/orders")
    for left in range(len(HOSTILE), 0, -1):
        page.locator("th.id a").first.click()
        page.get_by_role("button", name="Delete").click()
        page.locator("main form").get_by_role("button", name="Delete").click()
        wait_until(lambda left=left: app.metrics()["orders"].length == left - 1)
        page.goto(page.url.split("/queues/")[0] + "/queues/orders")


def test_a_read_only_view_offers_nothing_to_press(app, make_web, serve, look):
    orders = app.worker(queue_name="orders", shards_count=1)(lambda _: None)
    orders.perform_async([{"id": "17"}])
    url = serve(make_web(read_only=True))
    for path in page_paths("orders", "17"):
        page = look(url + path)
        expect(page.locator("form[method=post]")).to_have_count(0)
        expect(page.locator("main").get_by_role("button", name=re.compile("Delete|Bury|Perform"))).to_have_count(0)
