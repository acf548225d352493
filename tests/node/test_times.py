"""How long jobs waited and ran, as nodes count it, against clocks of the jobs' own."""

from __future__ import annotations

import asyncio
import time

import pytest

from lowkiq import Lowkiq, clock, current
from lowkiq.admin.past.statistics import Statistics, read_statistics
from lowkiq.node.counts import times
from lowkiq.node.counts.times import RedisClock
from tests.node.driven import burst

#: Seconds of a message from here to Redis or back.
QUICK = 0.0001


def statistics_of(app: Lowkiq, queue: str) -> Statistics:
    (found,) = read_statistics(app.caller, app.settings.namespace, queue, 1)
    return found


def at(values: list[float], share: float) -> float:
    return sorted(values)[int(share * (len(values) - 1))]


def test_percentiles_of_a_known_load_are_those_of_its_own_clock(app: Lowkiq) -> None:
    """On threads and on the event loop. Claims are single jobs, so that each starts when it is claimed."""
    waits: dict[str, list[float]] = {"plain": [], "awaited": []}
    runs: dict[str, list[float]] = {"plain": [], "awaited": []}

    @app.worker(queue_name="plain", shards_count=2)
    def plain(id: str, payloads: list[list[float]]) -> None:
        ((due, seconds),) = payloads
        started = time.time()
        time.sleep(seconds)
        waits["plain"].append(started - due)
        runs["plain"].append(time.time() - started)

    @app.worker(queue_name="awaited", shards_count=2, concurrency=5)
    async def awaited(id: str, payloads: list[list[float]]) -> None:
        ((due, seconds),) = payloads
        started = time.time()
        await asyncio.sleep(seconds)
        waits["awaited"].append(started - due)
        runs["awaited"].append(time.time() - started)

    due = time.time() - 2
    for worker in (plain, awaited):
        jobs = [
            {"id": n, "perform_in": due - n / 50, "payload": [due - n / 50, 0.06 + 0.15 * (n % 20 == 0)]}
            for n in range(100)
        ]
        worker.perform_async(jobs)  # type: ignore[arg-type]
    burst(app)
    for queue in ("plain", "awaited"):
        found = statistics_of(app, queue)
        for lengths, told in ((found.wait, waits[queue]), (found.run, runs[queue])):
            assert lengths.count == 100
            assert lengths.mean == pytest.approx(sum(told) / 100, rel=0.05)
            for share, value in ((0.5, lengths.p50), (0.95, lengths.p95), (0.99, lengths.p99)):
                assert value == pytest.approx(at(told, share), rel=0.05)


def test_jobs_of_one_claim_wait_until_each_begins(app: Lowkiq) -> None:
    """A claim holds fifty of these: who comes last in it has waited a while longer."""
    waits: list[float] = []

    @app.worker(queue_name="q", shards_count=1)
    def brief(id: str, payloads: list[float]) -> None:
        waits.append(time.time() - payloads[0])
        time.sleep(0.001)

    due = time.time() - 0.05
    brief.perform_async([{"id": n, "perform_in": due, "payload": due} for n in range(400)])
    burst(app, threads=1)
    wait = statistics_of(app, "q").wait
    assert wait.mean == pytest.approx(sum(waits) / 400, rel=0.02)
    for share, value in ((0.5, wait.p50), (0.95, wait.p95), (0.99, wait.p99)):
        assert value == pytest.approx(at(waits, share), rel=0.05)


def test_a_job_that_is_handed_over_waits_for_as_long_as_that_takes(app: Lowkiq) -> None:
    """Redis has the clock of this machine here."""
    waits: list[float] = []

    @app.worker(queue_name="q", shards_count=1)
    def once(id: str, payloads: list[str]) -> None:
        waits.append(time.time() - current().jobs[0].perform_in)
        if len(waits) < 100:
            time.sleep(0.002)  # so that the other thread is idle
            once.perform_async([{"id": len(waits)}])

    once.perform_async([{"id": 0}])
    burst(app, threads=2)
    wait = statistics_of(app, "q").wait
    assert wait.count == 100
    assert wait.p50 == pytest.approx(at(waits, 0.5), rel=0.3)  # of half a millisecond


@pytest.mark.parametrize(
    ("readings", "says"),
    [
        ([(100.0, QUICK, QUICK), (100.0, QUICK, 0.004)], 100.0),
        ([(100.0, QUICK, 0.008), (100.0, QUICK, QUICK), (100.0, 0.006, QUICK)], 100.0),
        ([(100.0, QUICK, QUICK), (105.0, QUICK, QUICK)], 105.0),
        ([(100.0, QUICK, QUICK), (95.0, QUICK, 0.010), (95.0, QUICK, QUICK)], 95.0),
    ],
    ids=["a late reply", "a late reply first", "the clock is set forward", "back"],
)
def test_a_late_reply_does_not_mislead_about_redis_clock(
    app: Lowkiq, monkeypatch: pytest.MonkeyPatch, readings: list[tuple[float, float, float]], says: float
) -> None:
    """Each reading: by how much Redis's clock is ahead, and how long the question took to get there, and the reply."""
    now, replies = 50.0, iter(readings)

    def redis_time(_: object) -> float:
        nonlocal now
        ahead, there, back = next(replies)
        now += there + back
        return now - back + ahead

    monkeypatch.setattr(clock, "monotonic", lambda: now)
    monkeypatch.setattr(times, "redis_time", redis_time)
    monkeypatch.setattr(times, "READINGS", len(readings))
    redis_clock = RedisClock()
    redis_clock.ask(app.caller)
    assert redis_clock.ahead == pytest.approx(says, abs=2 * QUICK)


def test_each_try_is_counted_and_a_retry_waits_from_its_own_due_time(app: Lowkiq) -> None:
    tries: list[str] = []

    @app.worker(queue_name="q", shards_count=1, batch_size=2)
    def fails_once(batch: dict[str, list[str]]) -> None:
        tries.append("")
        time.sleep(0.02)
        if len(tries) == 1:
            raise ValueError("once")

    fails_once.retry_in = lambda self, retry_count: 0.0  # type: ignore[method-assign,assignment,misc]
    fails_once.perform_async([{"id": n, "perform_in": time.time() - 100} for n in range(2)])
    burst(app)
    found = statistics_of(app, "q")
    assert (found.wait.count, found.run.count) == (4, 4)
    assert found.wait.buckets[-1].count == 2  # a hundred seconds
    assert sum(bucket.count for bucket in found.wait.buckets if bucket.high < 60) == 2
    assert found.run.p50 is not None and found.run.p50 >= 0.019


def test_a_delay_is_no_wait_and_quick_jobs_count_by_the_mean_of_their_claim(app: Lowkiq) -> None:
    @app.worker(queue_name="q", shards_count=1)
    def quick(id: str, payloads: list[str]) -> None:
        pass

    quick.perform_async([{"id": n, "delay": 0.2} for n in range(500)])
    time.sleep(0.3)
    burst(app)
    found = statistics_of(app, "q")
    assert (found.wait.count, found.run.count) == (500, 500)
    assert found.run.p50 is not None and found.run.p50 < 0.001
    assert found.wait.mean is not None and 0.05 < found.wait.mean < 20
