"""Heartbeats: the memory and CPU that a node has had, a beat each, and what they survive."""

from __future__ import annotations

import errno

import pytest
from structlog.testing import capture_logs

from lowkiq import Lowkiq, clock
from lowkiq.admin.beats.health import BEAT_INTERVAL, NodeHealth
from lowkiq.node.health.heartbeat import KEPT_BEATS, HealthReport, Heartbeat
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
