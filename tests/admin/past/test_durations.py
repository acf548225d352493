"""Durations: buckets whose error is bounded, and whose sums are exact."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowkiq.admin.past.durations import BOUNDS, ERROR, Durations

#: Lengths from a microsecond to 24 days: what is told within ERROR.
SECONDS = st.floats(BOUNDS[0], BOUNDS[-1], exclude_max=True)
MANY = st.lists(SECONDS, min_size=1, max_size=60)


def durations_of(values: list[float]) -> Durations:
    found = Durations()
    for value in values:
        found.add(value)
    return found


def state(found: Durations) -> tuple[object, ...]:
    return found.count, list(found.buckets), [found.percentile(share / 100) for share in range(1, 101)]


def test_the_error_is_under_five_percent() -> None:
    assert ERROR < 0.05


@settings(max_examples=50)
@given(MANY, st.integers(1, 100))
def test_any_percentile_is_within_the_error(values: list[float], percent: int) -> None:
    true = sorted(values)[math.ceil(percent / 100 * len(values)) - 1]
    found = durations_of(values).percentile(percent / 100)
    assert found == pytest.approx(true, rel=ERROR * 1.000001)


@settings(max_examples=50)
@given(MANY)
def test_mean_and_deviation_are_those_of_the_values(values: list[float]) -> None:
    found, mean = durations_of(values), math.fsum(values) / len(values)
    assert found.mean == pytest.approx(mean)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))
    assert found.stddev == pytest.approx(deviation, rel=1e-4, abs=1e-4 * max(values))


@settings(max_examples=50)
@given(MANY, MANY)
def test_merging_is_the_same_as_counting_together(ours: list[float], theirs: list[float]) -> None:
    merged = durations_of(ours)
    merged.merge(durations_of(theirs))
    assert state(merged) == state(durations_of(ours + theirs))
    assert merged.total == pytest.approx(math.fsum(ours + theirs))


@settings(max_examples=50)
@given(MANY)
def test_its_text_says_it_all(values: list[float]) -> None:
    found = durations_of(values)
    read = Durations.parse(found.text.encode())
    assert (state(read), read.text) == (state(found), found.text)


@settings(max_examples=50)
@given(st.lists(st.floats(0, 1e7), min_size=1, max_size=60))
def test_waits_of_a_claim_fall_into_the_buckets_of_each(dues: list[float]) -> None:
    """Only some of the jobs are looked at, and yet each is counted where it belongs."""
    until = 1_000_000.0
    waits = Durations()
    waits.add_waits([SimpleNamespace(perform_in=due) for due in sorted(dues)], until)
    each = sorted(max(until - due, 0.0) for due in dues)
    for percent in range(1, 101):
        true = each[math.ceil(percent / 100 * len(each)) - 1]
        assert waits.percentile(percent / 100) == pytest.approx(true, rel=0.045, abs=1e-6)
    assert waits.count == len(each)
    assert waits.mean == pytest.approx(math.fsum(each) / len(each), rel=0.05, abs=1e-6)


def test_what_is_out_of_range_is_told_as_its_end() -> None:
    assert [durations_of([value]).percentile(0.5) for value in (0.0, 1e-9, 1e9)] == [0.0, 0.0, BOUNDS[-1]]
    nothing = Durations()
    assert (nothing.mean, nothing.stddev, nothing.percentile(0.5), nothing.text) == (None, None, None, "0 0 0")


@pytest.mark.parametrize(
    "text",
    ["", "1 2", "x 1 1", "1 1 1 5", "1 nan 1 5 1", "1 inf 1 5 1", "-1 1 1", "2 1 1 5 1", "1 1 1 500 1", "1 1 1 -5 1"],
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Durations.parse(text.encode())
