"""The checker of chaos: what follows, jobs that wait for others, and jobs that recur."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.chaos.checker import check
from tests.chaos.history import Cancel, Wait, Window, read
from tests.chaos.journal import Journal
from tests.chaos.test_checker import ROW, history, record, run, verdict_is
from tests.chaos.world.queues import RECURRING, WAITING

WAITS = (WAITING, "w")
#: A second that an id of RECURS is due at, of those that make up for what they have missed.
ID, EVERY = "all-1.5", 1_500


@pytest.mark.parametrize(("begun_at", "since", "found"), [(0.9, 0.5, 1), (1.05, 0.5, 1), (1.2, 0.5, 0), (0.9, 0.1, 0)])
def test_a_job_must_start_after_those_that_it_waits_for(begun_at: float, since: float, found: int) -> None:
    """Payload 1 is acknowledged at 0.2 and done at 1.1."""
    world = history(*run(1, "A.0", 5, 1), pushed=1)
    world.rows[WAITS] = run(begun_at, "B.0", 6, 1)
    world.waits[WAITS] = [Wait(*ROW, since)]
    verdict = check(world)
    assert (len(verdict.too_soon), verdict.waiting, verdict.is_good) == (found, 1, not found)


@pytest.mark.parametrize("why", ["let go", "cancelled", "fail over"])
def test_unless_somebody_has_let_it_go_or_there_is_none_to_wait_for(why: str) -> None:
    world = history(*run(1, "A.0", 5, 1), pushed=1)
    world.rows[WAITS] = run(0.9, "B.0", 6, 1)
    world.waits[WAITS] = [Wait(*ROW, 0.5)]
    assert check(world).too_soon
    if why == "let go":
        world.let_go = {WAITS}
    elif why == "cancelled":
        world.cancels[ROW] = [Cancel(1, 0.7)]
    else:
        world.faults = [Window(why, 0.6, 0.8)]
    verdict_is(check(world))
    assert check(world).too_soon == []


def recurring_world(directory: Path, *times: int, wall: float = 0.0, goes_on: bool = True) -> Path:
    """An id that recurred from 3.0 to 7.5 s, and was run for those milliseconds, at so many seconds after each."""
    for name in ("producers", "rows", "nodes"):
        (directory / name).mkdir()
    told = Journal(directory / "recurring.jsonl")
    told.write("first", id=ID, at=3.0, ahead=0.0)
    told.write("last", id=ID, at=7.5, goes_on=goes_on)
    row = Journal(directory / "rows" / f"{RECURRING}.{ID}.log")
    for count, number in enumerate(times):
        details: dict[str, Any] = {"r": f"A.{count}", "e": 5, "a": 1, "n": [number]}
        row.write("begin", **details, wall=number / 1_000 + wall)
        row.write("commit", **details)
    return directory


TIMES = (3_000, 4_500, 6_000, 7_500)


def test_each_time_is_done_once_and_one_that_is_not_is_lost(tmp_path: Path) -> None:
    verdict = check(read(recurring_world(tmp_path, *TIMES)))
    assert (verdict.is_good, verdict.recurred, verdict.payloads) == (True, 4, 4)


def test_one_that_is_not_done_is_lost(tmp_path: Path) -> None:
    assert check(read(recurring_world(tmp_path, 3_000, 4_500, 7_500))).lost == [(RECURRING, ID, 6_000)]


@pytest.mark.parametrize(
    ("times", "details", "found"),
    [
        (TIMES, {"wall": -0.1}, "began 100 ms before its time"),
        ((*TIMES, 8_000), {}, "8000, not for one of its times"),
        (TIMES, {"goes_on": False}, "recurs no more"),
    ],
)
def test_no_other_time_is_done_nor_before_it_comes_nor_none_any_more(
    tmp_path: Path, times: tuple[int, ...], details: dict[str, Any], found: str
) -> None:
    verdict = check(read(recurring_world(tmp_path, *times, **details)))
    assert not verdict.is_good and verdict.out_of_time and found in verdict.out_of_time[0]


def test_what_is_done_twice_is_unexplained(tmp_path: Path) -> None:
    assert len(check(read(recurring_world(tmp_path, *TIMES, 7_500))).unexplained) == 1


def test_along_a_pipeline_what_follows_from_what_follows_must_be_done_too(tmp_path: Path) -> None:
    for name in ("producers", "rows", "nodes"):
        (tmp_path / name).mkdir()
    producer = Journal(tmp_path / "producers" / "0.jsonl")
    producer.write("start", via="direct")
    producer.write("push", q="batches", sent=[["17", 1, None]])
    producer.write("ack", attempts=1)
    for queue in ("batches", "after-batches"):
        Journal(tmp_path / "rows" / f"{queue}.17.log").write("commit", r="A.0", e=5, a=1, n=[1])
    assert check(read(tmp_path)).lost == [("after-after-batches", "17", 1)]


def test_a_recurring_job_that_was_buried_is_no_poison() -> None:
    world = history(record(1, "begin", "A.0", 5, 1), pushed=1)
    world.morgue = world.killers = {(RECURRING, ID, 3_000)}
    world.rows[RECURRING, ID] = [record(1, "begin", "A.1", 5, 3_000, wall=9.0)]
    assert len(check(world).innocents) == 1
