"""The page of a queue: its shards, and its jobs in four views, a page at a time."""

from __future__ import annotations

import time
from urllib.parse import parse_qs, urlsplit

import pytest

from lowkiq import Rate
from lowkiq.admin.beats.health import ThreadHealth
from tests.node.driven import burst
from tests.queue.shard_driver import ShardDriver
from tests.web.conftest import open_queue
from tests.web.node_health import tell_health
from tests.web.reading import read


def ids_of(page):
    """The ids of the list, as its links name them; groups of errors have links to examples as well."""
    links = [urlsplit(link["href"] or "") for link in page.all("a") if link.get("class") != "example"]
    jobs = [link for link in links if link.path.endswith("/job")]
    return [parse_qs(link.query)["id"][0] for link in jobs]


def failed(driver, *errors, delay=60.0):
    """Jobs e0, e1 … that failed with these errors, e0 once, e1 twice …"""
    for number in range(len(errors)):
        driver.push(f"e{number}")
    lease = driver.lease()
    lease.claim()
    for number, error in enumerate(errors):
        lease.fail(f"e{number}", retry_count=number, delay=delay, error=error)


def test_an_unknown_queue_is_not_found(browser):
    assert "There is no queue nope." in read(browser, "/queues/nope", 404).text


def test_jobs_come_by_due_time(browser, driver):
    now = time.time()
    for id, wait in (("later", 3_600), ("first", -10), ("soon", 60)):
        driver.push(id, perform_in=now + wait)
    page = read(browser, "/queues/q?view=due")
    assert ids_of(page) == ["first", "soon", "later"]
    assert "Waiting 1 Scheduled 2 Running 0 Retrying 0 Morgue 0 Queued 3" in page.text


def test_the_next_page_goes_on_where_the_last_ended(browser, driver):
    driver.push_all(*((f"{number:03}", b"p", "", 1_000.0 + number) for number in range(60)))
    seen, path = [], "/queues/q"
    while path:
        page = read(browser, path)
        seen += ids_of(page)
        path = next((link["href"] or "" for link in page.all("a", rel="next")), "").partition("#")[0]
    assert seen == [f"{number:03}" for number in range(60)]


def test_a_pattern_finds_ids(browser, driver):
    for id in ("order-1", "order-2", "mail-1"):
        driver.push(id)
    page = read(browser, "/queues/q?view=due&pattern=order-*")
    assert sorted(ids_of(page)) == ["order-1", "order-2"]
    assert "3 ids looked at" in page.text
    assert page.all("input", name="pattern", value="order-*")


def test_an_exact_id_is_found_without_a_search(browser, driver):
    driver.push("order-1")
    assert ids_of(read(browser, "/queues/q?view=due&pattern=order-1")) == ["order-1"]
    assert "No such job here." in read(browser, "/queues/q?pattern=order-2").text


def test_retries_come_by_retry_count_with_their_errors_in_groups(browser, driver):
    failed(driver, "Timeout: after 5 s", "Timeout: after 30 s", "KeyError: 'vat'")
    page = read(browser, "/queues/q?view=retries")
    assert ids_of(page) == ["e2", "e1", "e0"]
    assert "2 kinds of errors" in page.text
    assert "Timeout: after # s 2" in page.text


def test_a_group_of_errors_leads_to_its_jobs(browser, driver):
    failed(driver, "Timeout: after 5 s", "Timeout: after 30 s", "KeyError: 'vat'")
    groups = read(browser, "/queues/q?view=retries")
    link = next(link for link in groups.links() if "Timeout" in link)
    page = read(browser, link.partition("#")[0])
    assert sorted(ids_of(page)) == ["e0", "e1"]
    assert "Only with the error Timeout: after # s" in page.text


def test_retries_can_be_narrowed_to_a_retry_count(browser, driver):
    failed(driver, "a", "b", "c")
    page = read(browser, "/queues/q?view=retries&retry_count=1")
    assert ids_of(page) == ["e1"]
    assert not page.all("input", name="all", value="1")


def test_the_morgue_comes_newest_first(browser, driver):
    driver.push("dead")
    lease = driver.lease()
    lease.claim()
    lease.exhaust("dead", error="Traceback (most recent call last):\n  ...\nValueError: gave up")
    page = read(browser, "/queues/q?view=morgue")
    assert ids_of(page) == ["dead"]
    assert "ValueError: gave up" in page.text
    assert "Traceback" not in page.text


def test_what_is_in_flight_tells_node_thread_and_seconds(browser, app, driver):
    driver.push("17")
    driver.push("18")
    driver.lease("host:1:abc").claim()
    thread = ThreadHealth(name="lowkiq-worker-2", worker="W", queue="q", shard=0, ids=["17"], jobs=1, seconds=75.0)
    tell_health(app, number_of_nodes=1, threads=[thread])
    text = read(browser, "/queues/q?view=in_flight").text
    assert "17 performed 1 min 15 s node 0 thread lowkiq-worker-2" in text
    assert "18 claimed, next – node 0 – 0" in text  # noqa: RUF001 (an en dash, as in print)


def test_what_is_in_flight_of_a_node_unheard_of_is_claimed(browser, driver):
    driver.push("17")
    driver.lease("host:9:zzz").claim()
    assert "17 claimed – host:9:zzz" in read(browser, "/queues/q?view=in_flight").text  # noqa: RUF001


def test_shards_tell_owner_and_epoch(browser, app, driver):
    driver.push("1")
    lease = driver.lease("host:1:abc")
    tell_health(app, number_of_nodes=1)
    text = read(browser, "/queues/q").text
    assert f"0 node 0 1 0 s 0 0 0 {lease.epoch} by its number, 0 of 1, or a build_splitter" in text


def test_a_shard_whose_jobs_a_dead_node_has_stands_out_as_in_the_alert(browser, app, driver):
    driver.push("1")
    tell_health(app, number_of_nodes=1)
    lease = driver.lease("host:9:zzz")
    lease.claim()
    lease.release("lease")
    page = read(browser, "/queues/q")
    assert "Shard 0 of q has jobs due and no node" in page.text
    assert page.all("tr", data_key="0", **{"class": "bad"})


def test_of_a_thousand_shards_the_fifty_worst_are_shown(browser, app):
    open_queue(app, shards_count=400)
    tell_health(app, number_of_nodes=1)
    late = ShardDriver(app, "q", 333, 400)
    late.push("x", perform_in=time.time() - 500)
    page = read(browser, "/queues/q")
    rows = [row for row in page.all("tr") if (row.get("data-key") or "").isdigit()]
    assert len(rows) == 50
    assert rows[0]["data-key"] == "333"
    assert "Shard 333 of q has jobs due and no node" in page.text
    everything = next(link for link in page.links() if "shards=all" in link).partition("#")[0]
    assert len([row for row in read(browser, everything).all("tr") if (row.get("data-key") or "").isdigit()]) == 400


def test_payloads_can_be_hidden(make_web, browse, driver):
    driver.push("1", payload=b'"secret"')
    assert "secret" in read(browse(make_web()), "/queues/q?view=due").text
    assert "secret" not in read(browse(make_web(payloads=False)), "/queues/q?view=due").source


def test_a_read_only_view_has_no_forms_that_change(make_web, browse, driver):
    driver.push("1")
    page = read(browse(make_web(read_only=True)), "/queues/q")
    assert not page.all("form", method="post")
    assert not page.all("input", type="checkbox")
    assert "read-only" in page.text


def test_a_live_fetch_leaves_the_list_of_jobs_alone(browser, driver):
    driver.push("1")
    page = read(browser, "/queues/q", x_lowkiq_live="slow")
    assert ids_of(page) == []
    parts = {attributes["data-live"] for _, attributes in page.tags if "data-live" in attributes}
    assert parts >= {"tiles", "tabs", "shards", "charts", "all-count"}


def test_a_tick_costs_redis_nothing(browser, app, driver):
    driver.push("1")
    read(browser, "/queues/q")
    count = int(app.redis().info("stats")["total_commands_processed"])
    started = time.monotonic()
    for number in range(20):
        read(browser, f"/queues/q?view=in_flight&n={number}", x_lowkiq_live="tick")
    polls = time.monotonic() - started + 2
    assert int(app.redis().info("stats")["total_commands_processed"]) - count < 20 * polls


@pytest.mark.parametrize(
    "query",
    [
        "view=running&view=due",
        "retry_count=x",
        "span=9",
        "path=x&request=y&query=z",
        "shards=none",
        "cursor=",
        "done=delete",
    ],
)
def test_parameters_that_make_no_sense_do_no_harm(browser, driver, query):
    driver.push("1")
    assert ids_of(read(browser, f"/queues/q?view=due&{query}")) == ["1"]


def test_a_cursor_that_is_none_is_refused(browser, driver):
    assert "is no cursor" in read(browser, "/queues/q?cursor=%27x", 400).text


def test_the_rate_and_what_waits_for_it_are_told(browser, app):
    worker = app.worker(queue_name="rated", shards_count=1, rate=Rate(1, per=3600))(lambda _: None)
    worker.perform_async([{"id": id} for id in "abc"])
    burst(app, queues=["rated"])
    assert "Rate 1/3600 · 2 jobs wait for it, the last one for another 2 h" in read(browser, "/queues/rated").text
