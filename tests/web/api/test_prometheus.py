"""Metrics for Prometheus: their names and numbers, in both formats, whatever stands in Redis."""

from __future__ import annotations

import pytest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from lowkiq.admin.beats.health import ThreadHealth
from lowkiq.web import create_app
from lowkiq.web.api.prometheus import HOST_CHARS
from tests.queue.shard_driver import PAST, ShardDriver
from tests.web.node_health import tell_health

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
#: Metrics of the fixtures' queue and node that do not depend on the time.
QUEUE = {
    "lowkiq_queue_length": 2, "lowkiq_queue_fresh": 1, "lowkiq_queue_retries": 1, "lowkiq_queue_waiting": 0,
    "lowkiq_queue_busy": 1, "lowkiq_queue_claims": 1, "lowkiq_queue_morgue_length": 1, "lowkiq_queue_paused_shards": 0,
    "lowkiq_queue_held": 0, "lowkiq_queue_blocked": 0,
    "lowkiq_jobs_processed_total": 1, "lowkiq_jobs_failed_total": 2,
    "lowkiq_payloads_pushed_total": 6, "lowkiq_payloads_merged_total": 1,
    "lowkiq_payloads_superseded_total": 0,
}  # fmt: skip
NODE = {
    "lowkiq_node_up": 1, "lowkiq_node_threads": 2, "lowkiq_node_threads_busy": 1, "lowkiq_node_rss_bytes": 5_000,
    "lowkiq_node_running_on": 0, "lowkiq_node_cpu_percent": 6.5, "lowkiq_node_redis_round_trip_seconds": 0.001,
    "lowkiq_node_restarts_total": 7,
}  # fmt: skip
QUEUES = {*QUEUE, "lowkiq_queue_lag_seconds"}
NODES = {*NODE, "lowkiq_node_beat_age_seconds"}
TOTALS = {
    "lowkiq_nodes_missing", "lowkiq_nodes_late", "lowkiq_nodes_doubled", "lowkiq_shards_unowned",
    "lowkiq_redis_memory_bytes", "lowkiq_redis_max_memory_bytes", "lowkiq_redis_clients",
}  # fmt: skip


ALERTS = {"lowkiq_alerts", "lowkiq_alert", "lowkiq_alert_since_seconds"}


def snapshot_alerts(app):
    """Alerts by the list itself."""
    return app.nodes().alerts


@pytest.fixture
def shard(app):
    """A queue in which something of everything has happened."""
    app.worker(queue_name="q", shards_count=1)(lambda payloads_by_id: None)
    shard = ShardDriver(app)
    shard.push_all(("done",), ("failed",), ("dead",), ("flying",))
    shard.push("failed", b"merged")
    lease = shard.lease()
    lease.claim()
    lease.ack("done")
    lease.fail("failed")
    lease.exhaust("dead")
    shard.push("late", perform_in=PAST)
    return shard


@pytest.fixture
def tell(app):
    """Beats as a node does."""

    def tell(**fields):
        idle, busy = ThreadHealth(name="a"), ThreadHealth(name="b", queue="q", shard=0, ids=["x"], jobs=1, seconds=1.0)
        tell_health(app, **({"threads": [idle, busy]} | fields))

    return tell


@pytest.fixture
def scrape(app, browse):
    def scrape(accept=""):
        response = browse(create_app(app, no_auth=True)).get("/metrics", accept=accept)
        assert response.status_code == 200
        return response

    return scrape


def samples(response):
    """Name → labels' values → number."""
    found = {}
    for family in text_string_to_metric_families(response.text):
        assert family.documentation.endswith(".")
        for sample in family.samples:
            row = found.setdefault(sample.name, {})
            key = tuple(sample.labels.values())
            assert key not in row, f"{sample.name}{key} is there twice"
            row[key] = sample.value
    return found


def test_a_queue_tells_what_it_holds_and_has_done(shard, scrape):
    found = samples(scrape())
    assert found.keys() >= QUEUES
    numbers = {name: found[name]["q",] for name in QUEUES}
    lag = numbers.pop("lowkiq_queue_lag_seconds")
    assert lag == pytest.approx(shard.now() - PAST, abs=60)
    assert numbers == QUEUE


def test_a_node_tells_how_it_fares(tell, scrape):
    tell()
    found = samples(scrape())
    assert found.keys() >= NODES
    assert all(set(found[name]) == {("host", "0")} for name in NODES)
    numbers = {name: found[name]["host", "0"] for name in NODES}
    assert 0 <= numbers.pop("lowkiq_node_beat_age_seconds") < 60
    assert numbers == NODE


def test_a_node_of_async_workers_tells_of_its_tasks_and_its_loop(tell, scrape):
    stuck = ThreadHealth(name="event loop", queue="q", shard=0, ids=["x"], jobs=1, seconds=9.0, to_stop_seconds=8.0)
    tell(threads=[], tasks=120, longest_tasks=[stuck], loop_lag=2.5)
    found = samples(scrape())
    names = "threads", "threads_busy", "tasks", "loop_lag_seconds", "running_on"
    assert [found[f"lowkiq_node_{name}"]["host", "0"] for name in names] == [0, 0, 120, 2.5, 1]
    tell()
    assert "lowkiq_node_tasks" not in samples(scrape())


def test_a_node_that_has_not_measured_its_round_trip_has_none(tell, scrape):
    tell(redis_round_trip=None)
    assert "lowkiq_node_redis_round_trip_seconds" not in samples(scrape())


def test_what_is_wrong_is_counted(app, shard, tell, scrape):
    tell()
    tell(node="host:2:def", host="other")
    found = samples(scrape())
    assert found.keys() >= TOTALS
    assert {name: found[name][()] for name in TOTALS if "nodes" in name} == {
        "lowkiq_nodes_missing": 1, "lowkiq_nodes_late": 0, "lowkiq_nodes_doubled": 1,
    }  # fmt: skip
    assert found["lowkiq_redis_memory_bytes"][()] > 0
    told = snapshot_alerts(app)
    assert found["lowkiq_alerts"] == {
        (severity,): sum(alert.severity == severity for alert in told) for severity in ("bad", "warn")
    }
    assert {alert.kind for alert in told} >= {"missing", "doubled"}


def test_nobody_knows_of_more_metrics_than_these(shard, tell, scrape):
    tell()
    assert samples(scrape()).keys() == QUEUES | NODES | TOTALS | ALERTS


def test_of_two_nodes_with_one_number_on_one_host_the_last_heard_of_is_told(app, tell, scrape):
    """A series that is there twice would fail the whole scrape."""
    tell(node="host:1:old", rss=1)
    app.redis().zincrby(f"{app.settings.namespace}:nodes", -20, "host:1:old")
    tell(node="host:2:new", rss=2)
    assert samples(scrape())["lowkiq_node_rss_bytes"] == {("host", "0"): 2}


def test_a_late_node_is_not_up(app, tell, scrape):
    tell()
    app.redis().zincrby(f"{app.settings.namespace}:nodes", -20, "host:1:abc")
    found = samples(scrape())
    assert found["lowkiq_node_up"] == {("host", "0"): 0}
    assert found["lowkiq_nodes_late"] == {(): 1}


@pytest.mark.parametrize("host", ['"} 1\nlowkiq_evil{a="', "\u202e", "x" * 2_000, "\x00", "", "\\"])
def test_a_hostile_host_is_a_harmless_label(tell, scrape, host):
    tell(host=host)
    found = samples(scrape())
    ((label, _),) = found["lowkiq_node_up"]
    assert len(label) <= HOST_CHARS
    assert label.isascii()
    assert not set(label) & set('"\\\n\x00{}')
    assert "lowkiq_evil" not in found


def test_a_queue_that_no_producer_can_have_made_is_no_label(app, shard, scrape):
    app.redis().hset(f"{app.settings.namespace}:queues", 'x"} 1\nlowkiq_evil{a="', 1)
    found = samples(scrape())
    assert found["lowkiq_queue_length"].keys() == {("q",)}
    assert "lowkiq_evil" not in found


def test_a_scraper_that_asks_for_openmetrics_gets_it(shard, tell, scrape):
    tell()
    response = scrape(OPENMETRICS)
    assert response.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    families = {family.name: family for family in openmetrics.text_string_to_metric_families(response.text)}
    assert families["lowkiq_jobs_processed"].type == "counter"
    assert families["lowkiq_queue_length"].type == "gauge"
    assert response.text.endswith("# EOF\n")


@pytest.mark.parametrize("accept", ["", "*/*", "text/html", "text/plain;version=x", b"\xff", "," * 5_000])
def test_any_other_gets_text(shard, scrape, accept):
    assert samples(scrape(accept)).keys() >= QUEUES


@pytest.mark.parametrize(
    "accept",
    ["application/openmetrics-text;version=x", b"text/plain;version=1.0.0.\xff", f"text/plain;version={'9' * 5_000}"],
)
def test_a_version_that_is_none_is_no_failure(shard, scrape, accept):
    assert "lowkiq_queue_length" in scrape(accept).text


def test_metrics_have_no_caching_and_ignore_parameters(app, shard, browse):
    response = browse(create_app(app, no_auth=True)).get("/metrics?target=x&name[]=y")
    assert response.status_code == 200
    assert response.headers["cache-control"] == "no-store"


def test_nodes_of_one_number_and_host_that_run_different_queues_are_told_apart(tell, scrape):
    tell(node="a", queues=["mail"])
    tell(node="b", queues=["video", "<b>"])
    assert 'queues="mail"} 1.0' in scrape().text and 'queues="video"} 1.0' in scrape().text
