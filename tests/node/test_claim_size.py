"""How many jobs a claim takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowkiq.node.claim_size import MOST_SHARDS, Pace
from lowkiq.queue.shard import MAX_CLAIM

WINDOW = 0.05


def test_an_unknown_worker_starts_with_one_batch() -> None:
    assert Pace(WINDOW, 1).limit == 1
    assert Pace(WINDOW, 30).limit == 30


def test_a_claim_grows_eightfold_at_most() -> None:
    pace = Pace(WINDOW, 1)
    limits = []
    for _ in range(5):
        pace.learn(pace.limit, pace.limit * 1e-6)
        limits.append(pace.limit)
    assert limits == [8, 64, 512, MAX_CLAIM, MAX_CLAIM]


def test_a_claim_holds_what_fits_the_window() -> None:
    pace = Pace(WINDOW, 1)
    for _ in range(10):
        pace.learn(pace.limit, pace.limit * 0.001)
    assert pace.limit == pytest.approx(50, abs=1)


def test_jobs_that_turn_slow_bring_it_down_to_one_batch_at_once() -> None:
    pace = Pace(WINDOW, 4)
    for _ in range(10):
        pace.learn(10, 1e-6)
    assert pace.limit > 100
    pace.learn(1, 1.0)
    assert pace.limit == 4


def test_one_lucky_sample_among_slow_ones_changes_little() -> None:
    pace = Pace(WINDOW, 1)
    for _ in range(5):
        pace.learn(1, 1.0)
    pace.learn(1, 1e-6)
    assert pace.limit == 1


@given(st.integers(1, 1000), st.lists(st.tuples(st.integers(1, 1000), st.floats(0, 10)), max_size=30))
def test_a_claim_is_of_whole_batches_from_one_to_the_most(batch_size: int, samples: list[tuple[int, float]]) -> None:
    pace = Pace(WINDOW, batch_size)
    for performs, seconds in samples:
        before = pace.limit
        pace.learn(performs, seconds)
        assert batch_size <= pace.limit <= max(MAX_CLAIM, batch_size)
        assert pace.limit <= 8 * before
        assert pace.limit % batch_size == 0


def test_a_clock_that_stands_still_does_no_harm() -> None:
    pace = Pace(WINDOW, 1)
    pace.learn(1, 0.5)
    for _ in range(5_000):
        pace.learn(1, 0.0)
    assert pace.limit == MAX_CLAIM


def quick(held: int, times: int = 30) -> Pace:
    """Claims have brought so many jobs each, all of them quick."""
    pace = Pace(WINDOW, 1)
    for _ in range(times):
        pace.learn(held, held * 1e-6)
    return pace


def test_an_unknown_worker_is_claimed_for_shard_by_shard() -> None:
    assert Pace(WINDOW, 1).shards == 1


@pytest.mark.parametrize(("held", "shards"), [(1, MOST_SHARDS), (50, 9), (200, 2), (MAX_CLAIM, 1)])
def test_where_claims_bring_little_shards_share_a_round_trip(held: int, shards: int) -> None:
    pace = quick(held)
    assert pace.limit == MAX_CLAIM
    assert pace.shards == shards
    assert pace.share(shards) >= 2 * held or shards == 1, "room for twice as many"


def test_where_one_claim_brings_little_by_chance_they_do_not() -> None:
    pace = quick(MAX_CLAIM)
    pace.learn(1, 1e-6)
    assert pace.shards == 1


def test_slow_jobs_are_claimed_shard_by_shard() -> None:
    pace = quick(1)
    pace.learn(1, WINDOW / 2)
    assert pace.shards == 1


@given(st.integers(1, 1000), st.lists(st.tuples(st.integers(1, 1000), st.floats(0, 10)), max_size=30))
def test_together_shards_have_no_more_than_one_alone(batch_size: int, samples: list[tuple[int, float]]) -> None:
    pace = Pace(WINDOW, batch_size)
    for performs, seconds in samples:
        pace.learn(performs, seconds)
        assert 1 <= pace.shards <= MOST_SHARDS
        assert pace.share(1) == pace.limit
        assert batch_size <= pace.share(pace.shards) <= max(pace.limit // pace.shards, batch_size)
        assert pace.share(pace.shards) % batch_size == 0
