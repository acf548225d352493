"""How many jobs a claim takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowkiq.node.pace import Pace
from lowkiq.store.shard import MAX_CLAIM

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
