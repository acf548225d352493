"""How many jobs a claim takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowkiq.node.leases.claim_size import MOST_SHARDS, ClaimSize
from lowkiq.queue.shard import MAX_CLAIM

WINDOW = 0.05


def test_an_unknown_worker_starts_with_one_batch() -> None:
    assert ClaimSize(WINDOW, 1).share(1) == 1
    assert ClaimSize(WINDOW, 30).share(1) == 30


def test_a_claim_grows_eightfold_at_most() -> None:
    size = ClaimSize(WINDOW, 1)
    limits = []
    for _ in range(5):
        size.learn(size.share(1), size.share(1) * 1e-6)
        limits.append(size.share(1))
    assert limits == [8, 64, 512, MAX_CLAIM, MAX_CLAIM]


def test_a_claim_holds_what_fits_the_window() -> None:
    size = ClaimSize(WINDOW, 1)
    for _ in range(10):
        size.learn(size.share(1), size.share(1) * 0.001)
    assert size.share(1) == pytest.approx(50, abs=1)


def test_jobs_that_turn_slow_bring_it_down_to_one_batch_at_once() -> None:
    size = ClaimSize(WINDOW, 4)
    for _ in range(10):
        size.learn(10, 1e-6)
    assert size.share(1) > 100
    size.learn(1, 1.0)
    assert size.share(1) == 4


def test_one_lucky_sample_among_slow_ones_changes_little() -> None:
    size = ClaimSize(WINDOW, 1)
    for _ in range(5):
        size.learn(1, 1.0)
    size.learn(1, 1e-6)
    assert size.share(1) == 1


@given(st.integers(1, 1000), st.lists(st.tuples(st.integers(1, 1000), st.floats(0, 10)), max_size=30))
def test_a_claim_is_of_whole_batches_from_one_to_the_most(batch_size: int, samples: list[tuple[int, float]]) -> None:
    size = ClaimSize(WINDOW, batch_size)
    for performs, seconds in samples:
        before = size.share(1)
        size.learn(performs, seconds)
        assert batch_size <= size.share(1) <= max(MAX_CLAIM, batch_size)
        assert size.share(1) <= 8 * before
        assert size.share(1) % batch_size == 0


def test_a_clock_that_stands_still_does_no_harm() -> None:
    size = ClaimSize(WINDOW, 1)
    size.learn(1, 0.5)
    for _ in range(5_000):
        size.learn(1, 0.0)
    assert size.share(1) == MAX_CLAIM


def quick(held: int, times: int = 30) -> ClaimSize:
    """Claims have brought so many jobs each, all of them quick."""
    size = ClaimSize(WINDOW, 1)
    for _ in range(times):
        size.learn(held, held * 1e-6)
    return size


def test_an_unknown_worker_is_claimed_for_shard_by_shard() -> None:
    assert ClaimSize(WINDOW, 1).shards == 1


@pytest.mark.parametrize(("held", "shards"), [(1, MOST_SHARDS), (50, 9), (200, 2), (MAX_CLAIM, 1)])
def test_where_claims_bring_little_shards_share_a_round_trip(held: int, shards: int) -> None:
    size = quick(held)
    assert size.share(1) == MAX_CLAIM
    assert size.shards == shards
    assert size.share(shards) >= 2 * held or shards == 1, "room for twice as many"


def test_where_one_claim_brings_little_by_chance_they_do_not() -> None:
    size = quick(MAX_CLAIM)
    size.learn(1, 1e-6)
    assert size.shards == 1


def test_slow_jobs_are_claimed_shard_by_shard() -> None:
    size = quick(1)
    size.learn(1, WINDOW / 2)
    assert size.shards == 1


@given(st.integers(1, 1000), st.lists(st.tuples(st.integers(1, 1000), st.floats(0, 10)), max_size=30))
def test_together_shards_have_no_more_than_one_alone(batch_size: int, samples: list[tuple[int, float]]) -> None:
    size = ClaimSize(WINDOW, batch_size)
    for performs, seconds in samples:
        size.learn(performs, seconds)
        assert 1 <= size.shards <= MOST_SHARDS
        assert batch_size <= size.share(size.shards) <= max(size.share(1) // size.shards, batch_size)
        assert size.share(size.shards) % batch_size == 0
