"""Heartbeats: the memory and CPU that a node has had, a beat each, and what they survive."""

from __future__ import annotations

import dataclasses
import errno

import pytest
from structlog.testing import capture_logs

from lowkiq import Lowkiq, clock
from lowkiq.admin.beats.health import BEAT_INTERVAL, NodeHealth
from lowkiq.admin.past.incidents import read_incidents
from lowkiq.node.health.heartbeat import KEPT_BEATS, HealthReport, Heartbeat
from lowkiq.queue import keys
from tests.node.driven import runtime_of


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def monotonic(monkeypatch: pytest.MonkeyPatch) -> Clock:
    monotonic = Clock()
    monkeypatch.setattr(clock, "monotonic", monotonic)
    return monotonic


@pytest.fixture
def report(app: Lowkiq, monotonic: Clock) -> HealthReport:
    return HealthReport(runtime_of(app), [], {})


def test_the_first_beat_has_a_history_of_itself(report: HealthReport) -> None:
    health = report("ready", None)
    assert health.rss_history == [health.rss]
    assert health.cpu_history == [health.cpu_percent]


def test_each_beat_adds_to_it_and_the_oldest_go(report: HealthReport, monotonic: Clock) -> None:
    memory = []
    for _ in range(KEPT_BEATS + 5):
        health = report("ready", None)
        memory.append(health.rss)
        monotonic.now += BEAT_INTERVAL
    assert health.rss_history == memory[-KEPT_BEATS:]
    assert len(health.cpu_history) == KEPT_BEATS == 60
    assert all(isinstance(percent, float) and percent >= 0 for percent in health.cpu_history)


def test_a_beat_that_comes_early_is_not_kept(report: HealthReport, monotonic: Clock) -> None:
    report("ready", None)
    monotonic.now += BEAT_INTERVAL / 2
    assert len(report("draining", None).rss_history) == 1
    monotonic.now += 0.01
    assert len(report("draining", None).rss_history) == 2


def test_what_was_told_does_not_change_afterwards(report: HealthReport, monotonic: Clock) -> None:
    told = report("ready", None)
    monotonic.now += BEAT_INTERVAL
    report("ready", None)
    assert len(told.rss_history) == len(told.cpu_history) == 1


def test_a_heartbeat_goes_on_when_there_is_nothing_to_tell(app: Lowkiq) -> None:
    """Jobs may take every descriptor of the process for a moment: the node must not be missing for ever after."""
    asked: list[float | None] = []

    def report(round_trip: float | None) -> NodeHealth:
        asked.append(round_trip)
        if len(asked) > 1:
            heartbeat.stop()
        raise OSError(errno.EMFILE, "Too many open files", "/proc/1/stat")

    heartbeat = Heartbeat(runtime_of(app), report, lambda: None)
    heartbeat.beat_soon()
    with capture_logs() as logged:
        heartbeat.run()
    assert (len(asked), [entry["event"] for entry in logged]) == (2, ["beat_failed"])


def test_counts_are_flushed_with_each_beat_and_once_more_at_the_end(app: Lowkiq) -> None:
    """A flush that fails in itself keeps no other from its turn."""
    runtime, flushed = runtime_of(app), list[int]()

    def broken() -> None:
        raise ValueError("not to be added")

    def report(round_trip: float | None) -> NodeHealth:
        heartbeat.stop()
        return HealthReport(runtime, [], {})("ready", round_trip)

    runtime.flushes.extend([broken, lambda: flushed.append(1)])
    heartbeat = Heartbeat(runtime, report, lambda: None)
    with capture_logs() as logged:
        heartbeat.run()
    assert (flushed, [entry["event"] for entry in logged]) == ([1, 1], ["flush_failed"])


def test_an_outage_is_told_once_by_all_nodes_and_a_short_one_only_of_another_server(
    app: Lowkiq, report: HealthReport, monotonic: Clock
) -> None:
    def beats(name: str, seconds: float, server: str | None = None) -> int:
        runtime = dataclasses.replace(runtime_of(app), node=name)
        heartbeat = Heartbeat(runtime, lambda trip: report("ready", trip), lambda: None)
        heartbeat._beat()
        runtime.outage.met(ConnectionError("away"))
        assert runtime.outage.error(15) == "ConnectionError: away"
        monotonic.now += seconds
        heartbeat._server = server or heartbeat._server
        heartbeat._beat()
        assert runtime.outage.error(15) == ""
        runtime.incidents.send(app.caller, app.namespace, name)
        return len(read_incidents(app.caller, app.namespace, kind="Redis away"))

    assert beats("a", 2.0) == 0
    assert beats("b", 58.0) == beats("c", 59.0) == 1, "both met it"
    (told,) = read_incidents(app.caller, app.namespace, kind="Redis away")
    assert told.says.startswith("Redis was away for 58 s, from ") and "another server" not in told.says
    app.redis().delete(keys.away(app.namespace))
    assert beats("d", 0.1, "of before a failover") == 2
    assert "another server answers since" in read_incidents(app.caller, app.namespace, kind="Redis away")[0].says
