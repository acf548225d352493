"""Trials: one suspect at a time in a tree of processes starts while nothing else runs there."""

from __future__ import annotations

import os
import threading

import pytest

from lowkiq import clock
from lowkiq.node.suspects import trials
from lowkiq.node.suspects.trials import Suspect, Trials
from lowkiq.queue.call import Call
from lowkiq.shared_page import SharedPage
from lowkiq.tree_page import TreePage
from tests.support import BUDGET, wait_until


class Worker:
    """A thread, as far as trials know it."""

    is_leaving = False


class Held:
    """A claim of a suspect."""

    def isolate_call(self, id: str, *, is_alone: bool) -> Call[bool]:
        raise NotImplementedError


SUSPECT = Suspect(Held(), "s")


@pytest.fixture
def nodes() -> list[Trials]:
    """Two of a tree."""
    tree = TreePage()
    return [Trials(SharedPage(tree)) for _ in range(2)]


def test_nobody_begins_while_one_is_alone_and_all_go_on_once_it_has_ended(nodes: list[Trials]) -> None:
    tried, other, entered = Worker(), Worker(), threading.Event()
    assert nodes[0].begin(tried, trials.TRIED) == 0.0
    assert nodes[0].is_alone(lambda: False)
    nodes[0].run(tried, SUSPECT)
    thread = threading.Thread(target=lambda: nodes[1].enter(other) and entered.set())
    thread.start()
    assert not entered.wait(0.1)
    nodes[0].end(tried)
    assert entered.wait(BUDGET)
    thread.join()


def test_who_waits_for_it_waits_for_a_second_and_redis_is_told_first(nodes: list[Trials]) -> None:
    tried, other, entered = Worker(), Worker(), threading.Event()
    nodes[0].begin(tried, trials.TRIED)
    nodes[0].run(tried, SUSPECT)
    since = clock.monotonic()
    assert nodes[0].overdue() is None
    thread = threading.Thread(target=lambda: nodes[1].enter(other) and entered.set())
    thread.start()
    wait_until(nodes[0].overdue)
    assert clock.monotonic() - since >= trials.QUIET - 0.05
    assert not entered.is_set()
    suspect = nodes[0].overdue()
    assert suspect
    nodes[0].share(suspect)
    assert entered.wait(BUDGET)
    thread.join()


def test_beside_what_runs_already_it_is_not_alone(nodes: list[Trials], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "GATHER", 0.05)
    tried, other = Worker(), Worker()
    assert nodes[1].enter(other)
    assert nodes[0].begin(tried, trials.TRIED) == 0.0
    assert not nodes[0].is_alone(lambda: False)
    nodes[0].run(tried, None)
    assert nodes[1].enter(Worker()), "others go on"


def test_one_at_a_time_and_not_again_at_once(nodes: list[Trials]) -> None:
    tried = Worker()
    assert nodes[0].begin(tried, trials.TRIED) == 0.0
    assert nodes[0].begin(Worker(), trials.TRIED) > 0.0
    child = os.fork()
    if child == 0:  # the turn is a process's
        os._exit(0 if nodes[1].begin(Worker(), trials.TRIED) > 0.0 else 1)
    assert os.waitpid(child, 0)[1] == 0
    nodes[0]._tree.want()  # somebody waits meanwhile
    nodes[0].run(tried, None)
    nodes[0].end(tried)
    assert 0.0 < nodes[1].begin(Worker(), trials.TRIED) < 30


@pytest.mark.parametrize(("is_waited_for", "seconds"), [(False, 0.0), (True, trials.PAUSE * trials.QUIET)])
def test_one_that_ran_for_long_has_held_up_others_for_a_second_at_most_or_nobody(
    nodes: list[Trials], monkeypatch: pytest.MonkeyPatch, is_waited_for: bool, seconds: float
) -> None:
    tried, now = Worker(), [clock.monotonic()]
    monkeypatch.setattr(clock, "monotonic", lambda: now[0])
    assert nodes[0].begin(tried, trials.TRIED) == 0.0
    nodes[0].run(tried, SUSPECT)
    for _ in range(30):
        now[0] += 1
        nodes[0].look()
    if is_waited_for:
        nodes[0]._tree.want()
    nodes[0].end(tried)
    now[0] += seconds
    assert nodes[1].begin(tried, trials.TRIED) == 0.0


def test_a_turn_ends_though_it_runs_on_and_with_its_process(
    nodes: list[Trials], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trials, "TURN", 0.05)
    monkeypatch.setattr(trials, "PAUSE", 0)
    child = os.fork()
    if child == 0:
        os._exit(int(nodes[1].begin(Worker(), trials.TRIED) > 0.0))
    assert os.waitpid(child, 0)[1] == 0
    tried = Worker()
    nodes[0].run(Worker(), None)  # opens what the dead one has left closed
    assert nodes[0].begin(tried, trials.TRIED) == 0.0
    nodes[0].run(tried, None)
    wait_until(lambda: (nodes[0].look(), nodes[0].begin(Worker(), trials.TRIED) == 0.0)[1])


def test_what_leaves_begins_nothing(nodes: list[Trials]) -> None:
    nodes[0].begin(Worker(), trials.TRIED)
    leaving = Worker()
    leaving.is_leaving = True
    assert nodes[1].enter(leaving) is False


def test_the_place_of_a_dead_node_is_free_again() -> None:
    tree = TreePage()
    page = SharedPage(tree)
    Trials(page).enter(Worker())
    assert tree.is_busy
    page.close()
    assert not tree.is_busy
    assert SharedPage(tree).place == page.place


def test_who_has_ended_and_who_waits_keeps_nobody_from_being_alone(nodes: list[Trials]) -> None:
    tried, other, entered = Worker(), Worker(), threading.Event()
    assert nodes[1].enter(other)
    assert nodes[0]._tree.is_busy
    nodes[1].leave(other)
    assert not nodes[0]._tree.is_busy
    assert nodes[0].begin(tried, trials.TRIED) == 0.0
    thread = threading.Thread(target=lambda: nodes[1].enter(other) and entered.set())
    thread.start()
    wait_until(lambda: nodes[0]._tree.is_wanted)
    wait_until(lambda: not nodes[0]._tree.is_busy)
    nodes[0].end(tried)
    assert entered.wait(5)
    thread.join()


@pytest.mark.parametrize("suspect", [SUSPECT, None])
def test_the_tree_is_closed_for_as_long_as_one_is_alone_and_no_longer(
    nodes: list[Trials], monkeypatch: pytest.MonkeyPatch, suspect: Suspect | None
) -> None:
    tree, tried, now = nodes[0]._tree, Worker(), [clock.monotonic()]
    monkeypatch.setattr(clock, "monotonic", lambda: now[0])
    nodes[0].begin(tried, trials.TRIED)
    assert tree.is_closed
    nodes[0].run(tried, suspect)
    for _ in range(10):
        assert tree.is_closed is bool(suspect)
        assert nodes[0].overdue() is None, "nobody waits"
        now[0] += 1
        nodes[0].look()
    nodes[0].end(tried)
    assert not tree.is_closed
    assert nodes[0]._tried is None


def test_once_others_have_waited_for_a_second_the_tree_is_open(
    nodes: list[Trials], monkeypatch: pytest.MonkeyPatch
) -> None:
    tree, now = nodes[0]._tree, [clock.monotonic()]
    monkeypatch.setattr(clock, "monotonic", lambda: now[0])
    nodes[0].begin(Worker(), trials.TRIED)
    nodes[0].run(Worker(), SUSPECT)
    tree.want()
    assert nodes[0].overdue() is None
    now[0] += trials.QUIET
    assert nodes[0].overdue() is SUSPECT
    nodes[0].share(Suspect(Held(), "another"))
    assert tree.is_closed
    nodes[0].share(SUSPECT)
    assert not tree.is_closed
