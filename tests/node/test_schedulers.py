"""Which shard is next."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowkiq import Lowkiq
from lowkiq.node.schedulers import Lag, Ordered, Seq
from tests.node.driven import burst

SHARDS: Any = ["a", "b", "c"]


@pytest.fixture(params=[Lag, Seq])
def scheduler(request: pytest.FixtureRequest) -> Any:
    return request.param()


def test_nothing_noted_is_nothing_to_do(scheduler: Any) -> None:
    assert (scheduler.pick(10.0), scheduler.next_due_at()) == (None, None)


def test_a_shard_is_picked_when_it_is_due_and_not_before(scheduler: Any) -> None:
    scheduler.note("a", 5.0)
    assert (scheduler.pick(4.9), scheduler.next_due_at()) == (None, 5.0)
    assert scheduler.pick(5.0) == "a"


def test_a_picked_shard_is_forgotten_until_it_is_noted_again(scheduler: Any) -> None:
    scheduler.note("a", 5.0)
    scheduler.pick(5.0)
    assert (scheduler.pick(9.0), scheduler.next_due_at()) == (None, None)
    scheduler.note("a", 5.0)
    assert scheduler.pick(9.0) == "a"


def test_the_last_note_counts(scheduler: Any) -> None:
    scheduler.note("a", 1.0)
    scheduler.note("a", 9.0)
    assert (scheduler.pick(5.0), scheduler.next_due_at()) == (None, 9.0)
    scheduler.note("a", 2.0)
    assert scheduler.pick(5.0) == "a"
    assert scheduler.pick(99.0) is None


def test_an_empty_shard_is_not_picked(scheduler: Any) -> None:
    scheduler.note("a", 1.0)
    scheduler.note("a", None)
    assert (scheduler.pick(5.0), scheduler.next_due_at()) == (None, None)


def test_lag_picks_the_shard_that_has_waited_longest() -> None:
    lag: Lag[str] = Lag()
    for shard, due_at in zip(SHARDS, (3.0, 1.0, 2.0), strict=True):
        lag.note(shard, due_at)
    assert [lag.pick(5.0) for _ in range(4)] == ["b", "c", "a", None]


def test_seq_goes_round_and_leaves_out_those_with_nothing_due() -> None:
    seq: Seq[str] = Seq()
    for shard in SHARDS:
        seq.note(shard, 1.0)
    picked: list[Any] = []
    for _ in range(6):
        shard = seq.pick(5.0)
        seq.note(shard, 1.0)  # type: ignore[arg-type]
        picked.append(shard)
    assert picked == ["a", "b", "c"] * 2
    seq.note("b", None)  # type: ignore[arg-type]
    assert [seq.pick(5.0) for _ in range(3)] == ["a", "c", None]


@given(st.lists(st.tuples(st.sampled_from(SHARDS), st.none() | st.integers(0, 20).map(float)) | st.integers(0, 20)))
def test_lag_agrees_with_a_plain_search(steps: list[Any]) -> None:
    """A step notes a shard, or picks at a time."""
    lag: Lag[str] = Lag()
    due: dict[str, float] = {}
    for step in steps:
        if isinstance(step, tuple):
            lag.note(*step)
            due[step[0]] = step[1]
            if step[1] is None:
                del due[step[0]]
            continue
        picked = lag.pick(float(step))
        if picked is None:
            assert min(due.values(), default=99.0) > step
        else:
            longest = min(due.values())
            assert due.pop(picked) == longest <= step
            assert lag.next_due_at() == min(due.values(), default=None)


def test_a_job_far_ahead_that_is_noted_at_every_poll_costs_no_memory(scheduler: Any) -> None:
    """Its time jitters with the clocks."""
    scheduler.note("a", 1e9)
    tracemalloc.start()
    try:
        for number in range(20_000):
            scheduler.note("a", 1e9 + number % 7 * 1e-6 + number * 1e-9)
        assert tracemalloc.get_traced_memory()[0] < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("build", [Lag, Seq, Ordered(["jobs"])], ids=["Lag", "Seq", "Ordered"])
def test_each_runs_all_jobs(make_app: Callable[..., Lowkiq], build: Callable[[], Any]) -> None:
    app = make_app(build_scheduler=build, threads_per_node=2)
    ran: list[str] = []
    worker = app.worker(queue_name="jobs")(lambda batch: ran.extend(sorted(batch)))
    worker.perform_async([{"id": number} for number in range(200)])
    burst(app)
    assert sorted(map(int, ran)) == list(range(200))


def test_lag_sorts_nothing_in_again_that_is_noted_of_the_same_time_but_for_two_clocks() -> None:
    """A poll tells of all that is queued, a thread of thousands of shards each second."""
    lag: Lag[str] = Lag()
    for number in range(1_000):
        lag.note(SHARDS[0], 5.0 + number % 7 * 1e-4)
    assert len(lag._heap) == 1
    assert (lag.pick(4.9), lag.pick(5.0)) == (None, SHARDS[0])
