"""A shard with several claims in the API and in /metrics, and an id that waits for its own run."""

from __future__ import annotations

import json

import pytest

from lowkiq.admin.beats.health import ThreadHealth
from tests.beside import HOT_DUE, run_beside
from tests.web.node_health import tell_health

NODE = "host:1:abc"


@pytest.fixture
def lease(app, shard):
    threads = [
        ThreadHealth(name="t1", queue="q", shard=0, ids=["slow"], jobs=1, seconds=7.0),
        ThreadHealth(name="t0", queue="q", shard=0, ids=["hot"], jobs=1, seconds=12.0),
    ]
    tell_health(app, threads=threads)
    return run_beside(shard, NODE)


def test_a_job_tells_that_it_waits_for_its_own_run(api, lease):
    job = api.get("queues/q/job?id=hot")
    assert (job["ahead"], job["owner"]) == (None, NODE)
    queued, claimed = job["places"]
    assert (queued["where"], queued["at"], queued["waits_for_own_run"]) == ("queue", HOT_DUE, True)
    assert (claimed["where"], claimed["waits_for_own_run"]) == ("claim", False)
    assert (claimed["thread"], claimed["seconds"]) == ("t0", 12.0)
    lease.settle(1, rest="ack")
    (queued,) = api.get("queues/q/job?id=hot")["places"]
    assert (queued["at"], queued["waits_for_own_run"]) == (HOT_DUE, False)


def test_jobs_in_flight_are_those_of_all_claims_each_with_its_thread(api, lease):
    rows = api.get("queues/q/jobs?view=in_flight")["jobs"]
    assert [(row["id"], row["thread"]) for row in rows] == [("hot", "t0"), ("slow", "t1")]


def test_pages_have_it_at_its_own_time(api, shard, lease):
    shard.push_all(("before", b"1", 1.0, HOT_DUE - 1), ("after", b"1", 1.0, HOT_DUE + 1))
    found, cursor = [], ""
    while cursor is not None:
        reply = api.get(f"queues/q/jobs?limit=1&cursor={cursor}")
        found += [(row["id"], row["waits_for_own_run"]) for row in reply["jobs"]]
        cursor = reply["next"]
    assert found == [("before", False), ("hot", True), ("after", False)]


def test_numbers_are_plain_json(browser, lease):
    def refuse(word):
        raise AssertionError(f"{word} is no JSON")

    for path in ("stats", "queues", "queues/q", "nodes", "queues/q/job?id=hot", "queues/q/jobs"):
        json.loads(browser.get(f"/api/v1/{path}").text, parse_constant=refuse)


def test_a_queue_tells_of_claims_and_of_what_waits(api, browser, lease):
    reply = api.get("queues/q")
    metrics = {"length": 1, "waiting": 1, "busy": 2, "claims": 2, "lag": 0.0}
    assert reply["metrics"] | metrics == reply["metrics"]
    (shard,) = reply["shards"]
    assert (shard["waiting"], shard["busy"], shard["claims"], shard["due_in"]) == (1, 2, 2, None)
    assert api.get("stats")["total"] == {"length": 1, "morgue_length": 0, "lag": 0.0}
    metrics = browser.get("/metrics").text
    for line in ("queue_waiting", "queue_claims", "queue_busy", "queue_lag_seconds"):
        assert f'lowkiq_{line}{{queue="q"}} {({"queue_waiting": 1, "queue_lag_seconds": 0}).get(line, 2)}.0' in metrics
