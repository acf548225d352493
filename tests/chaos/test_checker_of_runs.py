"""The checker of chaos: cancelled jobs, checkpoints, and jobs in helper processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.chaos.checker import CLAIMED, check
from tests.chaos.history import Cancel, Node, Pause, Window, read
from tests.chaos.journal import Journal
from tests.chaos.test_checker import ROW, history, record, run, verdict_is

CANCELLED_AT = 10.0
LATE = CANCELLED_AT + CLAIMED + 1


@pytest.mark.parametrize(("number", "lost"), [(1, [(*ROW, 2)]), (2, [])])
def test_what_was_sent_before_a_cancel_need_not_run(number: int, lost: list[Any]) -> None:
    world = history(*run(1, "A.0", 5, 1), pushed=2)
    world.cancels[ROW] = [Cancel(number, None)]
    verdict_is(check(world), lost=lost)


def test_what_was_sent_before_a_cancel_may_be_overtaken() -> None:
    world = history(*run(1, "A.0", 5, 2), pushed=2)
    world.cancels[ROW] = [Cancel(1, CANCELLED_AT)]
    verdict_is(check(world))


@pytest.mark.parametrize(("number", "at", "came_back"), [(1, LATE, 1), (1, CANCELLED_AT + 1, 0), (2, LATE, 0)])
def test_what_was_cancelled_must_not_come_back(number: int, at: float, came_back: int) -> None:
    """Payload 2 was sent after the cancel."""
    world = history(*run(1, "A.0", 5, *({1, 2} - {number})), *run(at, "A.1", 5, number), pushed=2)
    world.cancels[ROW] = [Cancel(1, CANCELLED_AT)]
    verdict = check(world)
    assert (len(verdict.came_back), verdict.cancelled, verdict.is_good) == (came_back, 1, not came_back)


def test_what_was_put_back_must_run_all_the_same(tmp_path: Path) -> None:
    for name in ("producers", "rows", "nodes"):
        (tmp_path / name).mkdir()
    producer = Journal(tmp_path / "producers" / "0.jsonl")
    producer.write("start", via="direct")
    for number in (1, 2):
        producer.write("push", q=ROW[0], sent=[[ROW[1], number, None]])
        producer.write("ack", attempts=1)
        producer.write("cancel", q=ROW[0], id=ROW[1], n=number)
        if number == 1:
            producer.write("back", q=ROW[0], id=ROW[1], n=1)
    assert not check(read(tmp_path)).lost, "all of it was deleted again"
    producer.write("back", q=ROW[0], id=ROW[1], n=2)
    assert check(read(tmp_path)).lost == [(*ROW, 1), (*ROW, 2)]


@pytest.mark.parametrize(
    ("at", "started", "explained"),
    [(9.9, 0, 0), (10.05, 0, 0), (12.0, 1, 0), (14.9, 1, 0), (15.1, 0, 0), (20.0, 0, 0)],
)
def test_nothing_may_start_while_a_queue_is_paused(at: float, started: int, explained: int) -> None:
    world = history(*run(at, "A.0", 5, 1), pushed=1)
    world.pauses = [Pause(ROW[0], 10.0, 15.0), Pause("another", 0.0, 99.0)]
    verdict = check(world)
    assert (len(verdict.started_paused), verdict.paused_explained, verdict.paused) == (started, explained, 2)
    assert verdict.is_good == (not started)


@pytest.mark.parametrize(("at", "faults", "crowded"), [
    (3.0, (), (1, 0)), (5.1, (), (0, 0)), (3.0, (Window("pause node", 2.0, 2.9, [1]),), (0, 1)),
    (3.0, (Window("pause node", 2.0, 2.9, [3]),), (1, 0)),
])  # fmt: skip
def test_no_more_batches_may_run_at_once_than_max_running(
    at: float, faults: tuple[Window, ...], crowded: tuple[int, int]
) -> None:
    world = history(*run(1.0, "A.0", 5, 1, until=5.0), pushed=1, faults=faults)
    world.rows[ROW[0], "another id"] = run(at, "B.0", 6, 1, until=9.0)
    world.pushes[ROW[0], "another id", 1] = world.pushes[*ROW, 1]
    world.limits = {ROW[0]: 1}
    verdict = check(world)
    assert (len(verdict.crowded), verdict.crowded_explained) == crowded
    assert verdict.is_good == (not crowded[0])


def test_what_a_stopped_process_had_taken_before_may_start_when_it_goes_on() -> None:
    world = history(*run(12.0, "A.0", 5, 1), pushed=1, faults=(Window("pause node", 9.0, 11.9, [1]),))
    world.pauses = [Pause(ROW[0], 10.0, 15.0)]
    verdict = check(world)
    assert (len(verdict.started_paused), verdict.paused_explained) == (0, 1)


def test_tags_that_are_miscounted_are_no_good() -> None:
    world = history(*run(1, "A.0", 5, 1), pushed=1)
    assert check(world).is_good
    world.tags = ["orders counts ..."]
    assert not check(world).is_good


@pytest.mark.parametrize(("kept", "stale"), [(1, 0), (2, 1)])
def test_a_checkpoint_must_be_of_what_is_to_be_done(kept: int, stale: int) -> None:
    again = [record(2, "begin", "A.1", 5, 1, kept=kept), record(2.1, "commit", "A.1", 5, 1)]
    verdict = check(history(record(1, "begin", "A.0", 5, 1), record(1.1, "fail", "A.0", 5), *again, pushed=1))
    assert (len(verdict.stale), verdict.resumed, verdict.is_good) == (stale, 1, not stale)


@pytest.mark.parametrize(("kind", "pid"), [("kill helper", 3), ("kill fork server", 2), ("pause node", 1)])
def test_a_helper_that_dies_or_whose_node_was_hit_explains_a_second_run_under_its_token(kind: str, pid: int) -> None:
    world = history(*run(10, "H.0", 5, 1), *run(12, "H.1", 5, 1), pushed=1, faults=(Window(kind, 10.2, 10.2, (pid,)),))
    world.nodes["H"] = Node("H", 3, 2, "direct", 0.0, 100.0, helps=1)
    verdict = check(world)
    assert (dict(verdict.duplicates), verdict.unexplained) == ({kind: 1}, [])


def test_a_helper_that_nothing_hit_explains_nothing() -> None:
    world = history(
        *run(10, "H.0", 5, 1), *run(12, "H.1", 5, 1), pushed=1, faults=(Window("kill helper", 10, 10, (4,)),)
    )
    world.nodes["H"] = Node("H", 3, 2, "direct", 0.0, 100.0, helps=1)
    assert len(check(world).unexplained) == 1


def test_a_settle_that_was_delayed_may_meet_a_later_outage() -> None:
    away = (Window("delay", 10.2, 12, via="proxy"), Window("kill redis", 11.5, 12.5))
    world = history(*run(10, "A.0", 5, 1), *run(14, "B.0", 6, 1), pushed=1, faults=away)
    assert len(check(world).unexplained) == 1
    world.nodes["A"].via = "proxy"
    assert (dict(check(world).duplicates), check(world).unexplained) == ({"kill redis": 1}, [])


def test_or_the_death_of_its_own_node() -> None:
    world = history(
        *run(10, "A.0", 5, 1), *run(14, "B.0", 6, 1), pushed=1, faults=(Window("delay", 10.2, 12, via="proxy"),)
    )
    world.nodes["A"].via, world.nodes["A"].died_at = "proxy", 13.0
    assert len(check(world).unexplained) == 1, "it was settled by then"
    world.nodes["A"].died_at = 11.0
    assert (dict(check(world).duplicates), check(world).unexplained) == ({"a job killed the node": 1}, [])
