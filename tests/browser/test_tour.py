"""An operator's night: a node dies; a job fails, retries, dies, is revived. All of it is seen and done in a browser."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import PATIENCE
from tests.browser.shop import APP, Shop
from tests.support import wait_until

#: Nodes beat each second, are late after five and forgotten after twelve. Elsewhere that takes half a minute.
QUICK_BEATS = """
from lowkiq.admin.alerts import look, nodes
from lowkiq.admin.beats import health
from lowkiq.node.health import heartbeat

heartbeat.BEAT_INTERVAL = 1.0
for module in (health, look, nodes):
    module.BEAT_TTL = 12
health.LATE_AFTER = 5.0
"""

expect.set_options(timeout=PATIENCE)


def tile(page, name):
    """The number on a tile of the page."""
    text = page.locator(f'dl.tiles div[data-key="{name}"] dd').first.inner_text()
    return int(re.sub(r"[^0-9]", "", text.split()[0]))


def test_the_overview_shows_the_load_without_being_loaded_again(shop, look):
    page = look(shop.enter())
    expect(page.locator("#light")).to_have_text("live")
    page.evaluate("window.loadedOnce = true")
    shop.push(*(f"order-{number}" for number in range(50)), "slow-1", "bad-1")
    wait_until(lambda: tile(page, "running") == 1)
    wait_until(lambda: tile(page, "morgue") == 1)
    expect(page.locator("tr", has_text="orders").locator('td[data-label="Morgue"]')).to_have_text("1")
    assert page.evaluate("window.loadedOnce")


@pytest.mark.timeout(240)
def test_a_node_that_is_killed_goes_late_then_missing_and_comes_back(tmp_path, look):
    with Shop(tmp_path, "--restart", "never", app=APP + QUICK_BEATS) as shop:
        page = look(shop.enter("/nodes"))
        cards = page.locator("article.node")
        expect(cards).to_have_count(4)
        shop.kill_node(2)
        killed = cards.filter(has_text="Node 2")
        expect(killed.locator(".badge", has_text="late")).to_be_visible()
        expect(page.locator(".missing article", has_text="Node 2")).to_be_visible()
        expect(page.get_by_text("missing").first).to_be_visible()
        assert shop.command("restart", "2").returncode == 0
        expect(killed.locator(".badge", has_text="ready")).to_be_visible()
        expect(page.locator(".missing article")).to_have_count(0)
        expect(killed).to_contain_text("SIGKILL")


def test_a_failing_job_is_seen_to_retry_to_die_and_to_be_revived(shop, look):
    shop.push("bad-7")
    wait_until(lambda: shop.app.metrics()["orders"].morgue_length == 1)
    page = look(shop.enter())
    page.locator("tr", has_text="orders").get_by_role("link", name="1", exact=True).click()
    expect(page).to_have_url(re.compile("view=morgue"))
    page.locator("#listed").get_by_role("link", name="bad-7").click()
    expect(page.get_by_role("heading", name="bad-7")).to_be_visible()
    expect(page.locator("main")).to_contain_text("the ERP did not answer within 5 s")
    expect(page.locator("main")).to_contain_text('"state": "paid"')
    shop.mend()
    page.get_by_role("button", name="Revive").click()
    expect(page.locator('[role="status"].message')).to_contain_text("1")
    wait_until(lambda: shop.app.metrics()["orders"].morgue_length == 0)
    wait_until(lambda: shop.app.metrics()["orders"].length == 0)
    expect(page.locator("main")).to_contain_text("No such job")


def test_a_retry_is_seen_with_its_error_and_why_it_waits(shop, look):
    shop.mail.perform_async([{"id": "ann@example.com", "payload": "welcome"}])
    wait_until(lambda: shop.app.metrics()["mail"].retries == 1)
    page = look(shop.enter("/queues/mail?view=retries"))
    expect(page.locator("details, .errors").first).to_contain_text("the mail server refuses us")
    page.locator("#listed").get_by_role("link", name="ann@example.com").click()
    expect(page.locator(".why")).to_contain_text("failed")
    shop.mend()
    page.get_by_role("button", name="Perform now").click()
    wait_until(lambda: shop.app.metrics()["mail"].retries == 0)


def test_all_that_match_are_revived_after_the_count_was_asked_back(shop, look):
    shop.push(*(f"bad-{number}" for number in range(40)))
    wait_until(lambda: shop.app.metrics()["orders"].morgue_length == 40)
    page = look(shop.enter("/queues/orders?view=morgue&pattern=bad-1*"))
    shop.mend()
    page.locator("#on-all summary").click()  # folded, lest somebody takes it for the selection's
    page.get_by_role("button", name="Revive: all that match…").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("11")
    assert shop.app.metrics()["orders"].morgue_length == 40
    page.get_by_role("button", name="Revive 11").click()
    expect(page).to_have_url(re.compile("/bulks/"))
    expect(page.locator(".badge")).to_have_text("done")
    expect(page.locator("main")).to_contain_text("11 of 11")
    wait_until(lambda: shop.app.metrics()["orders"].morgue_length == 29)


def test_a_selection_is_deleted_only_when_it_is_confirmed(shop, look):
    shop.push(*(f"bad-{number}" for number in range(5)))
    wait_until(lambda: shop.app.metrics()["orders"].morgue_length == 5)
    page = look(shop.enter("/queues/orders?view=morgue"))
    for number in (1, 3):
        page.locator("tr", has_text=f"bad-{number}").get_by_role("checkbox").check()
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("2")
    page.get_by_role("link", name="Back", exact=True).click()
    assert shop.app.metrics()["orders"].morgue_length == 5
    for number in (1, 3):
        page.locator("tr", has_text=f"bad-{number}").get_by_role("checkbox").check()
    page.get_by_role("button", name="Delete", exact=True).click()
    page.locator("form").get_by_role("button", name="Delete").click()
    wait_until(lambda: shop.app.metrics()["orders"].morgue_length == 3)
    left = shop.orders.queries.morgue_range_by_updated_at(limit=10)
    assert sorted(job.id for job in left) == ["bad-0", "bad-2", "bad-4"]


def test_a_job_that_runs_shows_how_far_it_is_and_is_cancelled_after_a_question(shop, look):
    shop.push("slow-7")
    page = look(shop.enter("/nodes"))
    row = page.locator(".threads li", has_text="slow-7")
    expect(row).to_contain_text("page 3 of 8")
    expect(row.get_by_role("progressbar")).to_have_attribute("value", "0.4")
    row.get_by_role("link", name="slow-7").click()
    expect(page.get_by_role("progressbar", name="Progress of slow-7")).to_be_visible()
    page.get_by_role("button", name="Cancel…").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Cancel this job?")
    assert shop.app.metrics()["orders"].busy == 1
    page.get_by_role("button", name="Cancel this job").click()
    expect(page.locator('[role="status"].message')).to_contain_text("1 job cancelled")
    wait_until(lambda: shop.app.metrics()["orders"].busy == 0)
    expect(page.locator("main")).to_contain_text("No such job")
