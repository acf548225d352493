"""How many threads each shard keeps busy, as heartbeats tell."""

from __future__ import annotations

import math

import pytest

from lowkiq import Lowkiq, clock
from lowkiq.node.ownership.shard_loads import OVER, ShardLoads
from lowkiq.node.threads import leases_of
from tests.node.driven import acquire, runtime_of, thread_of


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The monotonic clock."""
    now = [1_000.0]
    monkeypatch.setattr(clock, "monotonic", lambda: now[0])
    return now


def test_a_load_follows_what_threads_do_within_its_time(app: Lowkiq, at: list[float]) -> None:
    worker = app.worker(queue_name="jobs", shards_count=2)(lambda _: None)
    busy, idle = leases_of(runtime_of(app), worker)
    for lease in (busy, idle):
        acquire(lease)
    loads = ShardLoads([], [busy, idle])
    for _ in range(12):
        at[0] += 5
        busy.busy_seconds += 10  # two threads
        told = loads()
    assert told == {"jobs": {busy.shard.index: pytest.approx(2, rel=math.exp(-60 / OVER) + 0.01)}}
    for _ in range(24):
        at[0] += 5
        told = loads()
    assert told == {}


def test_a_long_job_counts_while_it_runs_and_not_again_when_it_ends(app: Lowkiq, at: list[float]) -> None:
    worker = app.worker(queue_name="jobs", shards_count=1)(lambda _: None)
    (lease,) = leases_of(runtime_of(app), worker)
    acquire(lease)
    worker.perform_async([{"id": 1}])
    thread = thread_of(lease.runtime, lease)
    assert thread._pick_and_exchange()
    (claim,) = thread.in_hand
    loads = ShardLoads([thread], [lease])
    claim.performing_since = at[0]  # type: ignore[attr-defined]
    found = []
    for _ in range(4):
        at[0] += 5
        found.append(loads()["jobs"][0])
    assert found == sorted(found) and found[-1] == pytest.approx(1 - math.exp(-20 / OVER), abs=0.001)
    claim.performing_since = math.inf  # type: ignore[attr-defined]
    lease.busy_seconds += 20
    at[0] += 5
    assert loads()["jobs"][0] < found[-1]


def test_a_shard_that_is_gone_is_told_of_no_more(app: Lowkiq, at: list[float]) -> None:
    worker = app.worker(queue_name="jobs", shards_count=1)(lambda _: None)
    (lease,) = leases_of(runtime_of(app), worker)
    acquire(lease)
    loads = ShardLoads([], [lease])
    at[0] += 5
    lease.busy_seconds = 5
    assert loads()
    lease.lost(lease.epoch or "")
    at[0] += 5
    assert loads() == {}
