"""Anything may be in Redis, and is shown all the same: numbers without measure, unreadable beats, bytes."""

from __future__ import annotations

import pytest

from lowkiq.queue import keys
from lowkiq.queue.unreadable import quoted
from tests.web.node_health import tell_health
from tests.web.reading import read

#: Finite numbers that no clock shows.
NUMBERS = [1.7e308, -1.7e308, 1e300, -1e300, 5e-324, -1.0, 0.0, 2.0**53 + 2, 1e18, 253_402_300_800.0, -62_135_596_801.0]


@pytest.mark.parametrize("number", NUMBERS)
def test_pages_show_times_and_scores_of_any_size(browser, driver, app, number):
    worker = app.worker(queue_name="q", shards_count=1)(lambda _: None)
    worker.perform_async(
        [
            {"id": "score", "score": number},
            {"id": "several", "payload": 1, "score": number},
            {"id": "several", "payload": 2},
        ]
    )
    driver.push("time", perform_in=number)
    driver.redis.zadd(driver.key("morgue"), {"dead": number})
    driver.redis.hset(driver.key("morgue:payloads"), "dead", f"{number!r}:1")
    driver.redis.hset(driver.key("morgue:errors"), "dead", "boom")
    read_all(browser, "time", "score", "several", "dead")
    lease = driver.lease()
    lease.claim()
    read_all(browser, "time", "score", "several", "dead")
    assert app.metrics()["q"].length + app.metrics()["q"].busy == 3


def read_all(browser, *ids):
    for path in ("/", "/nodes", *(f"/queues/q?view={view}" for view in ("due", "retries", "in_flight", "morgue"))):
        read(browser, path)
    for id in ids:
        read(browser, f"/queues/q/job?id={id}")
        assert browser.get(f"/api/v1/queues/q/job?id={id}").status_code == 200
    for path in ("/metrics", "/api/v1/queues", "/api/v1/queues/q/jobs", "/api/v1/nodes"):
        answer = browser.get(path)
        assert answer.status_code < 500, path


@pytest.mark.parametrize("beat", [b"garbage", b"\xff\xfe", b"{}", b"[1]", b"null", b'{"node": 1}', b"[" * 10_000])
@pytest.mark.parametrize("name", [b"host:1:x", b"\xff\xfe"])
def test_a_beat_that_can_not_be_read_is_told_of_and_hides_no_other(browser, driver, app, beat, name):
    namespace = app.settings.namespace
    tell_health(app, node="host:2:y", number_of_nodes=1)
    driver.redis.zadd(keys.nodes(namespace), {name: driver.now()})
    driver.redis.set(keys.node(namespace, "").encode() + name, beat)
    found = app.nodes()
    assert [node.node for node in found.nodes] == ["host:2:y"]
    assert [one.key for one in found.unreadable] == [quoted(keys.node(namespace, "").encode() + name)]
    assert not found.is_well
    for path in ("/", "/nodes"):
        assert "that Lowkiq can't read" in read(browser, path).text
    assert browser.get("/api/v1/nodes").status_code == 200
    assert browser.get("/metrics").status_code == 200
