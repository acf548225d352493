"""When one node more is of use, and when one fewer would do: the policy alone, with its own clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise

import pytest

from lowkiq_supervisor.policy.load import GROW_AFTER, LOOK_INTERVAL, SHRINK_AFTER, Load, Step, Told

#: What a node of five threads tells.
FULL, IDLE, PILED_UP = Told(1.0, 3.0), Told(0.0, 0.0), Told(1.0, 30.0)


class Machine:
    """Nodes from 1 to 8, on a clock that goes by looks."""

    def __init__(self, nodes: int = 2, most: int = 8) -> None:
        self.now, self.nodes, self.most = 1000.0, nodes, most
        self.load = Load(lambda: self.now)
        self.steps: list[tuple[float, int]] = []
        self.began = self.now

    def run(self, seconds: float, told: Callable[[int, float], Iterable[Told]]) -> list[Step]:
        """Look once a second; `told` gets how many nodes there are, and the seconds since the start."""
        found = []
        for _ in range(round(seconds / LOOK_INTERVAL)):
            if step := self.load.look(list(told(self.nodes, self.now - self.began)), 1, self.most):
                self.nodes += step.by
                self.load.forget()
                self.steps.append((self.now - self.began, step.by))
                found.append(step)
            self.now += LOOK_INTERVAL
        return found


def all_of(one: Told) -> Callable[[int, float], list[Told]]:
    return lambda nodes, _: [one] * nodes


@pytest.fixture
def machine() -> Machine:
    return Machine()


def test_it_grows_by_one_when_all_were_busy_and_jobs_late_for_ten_seconds(machine: Machine) -> None:
    assert machine.run(GROW_AFTER, all_of(FULL)) == []
    (step,) = machine.run(1, all_of(PILED_UP))
    assert step == (1, "for 10 s all threads were busy, and jobs late, by up to 30 s")


def test_it_grows_on_by_one_at_a_time_up_to_the_most(machine: Machine) -> None:
    machine.run(300, all_of(FULL))
    assert [by for _, by in machine.steps] == [1] * 6
    assert all(later - earlier > GROW_AFTER for (earlier, _), (later, _) in pairwise(machine.steps))


@pytest.mark.parametrize(
    "told",
    [
        pytest.param([FULL, Told(0.8, 9.0)], id="one thread is free: the jobs wait for something else"),
        pytest.param([FULL._replace(late=0.5)] * 2, id="all are busy, and no job waits"),
        pytest.param([Told(0.0, 9.0)] * 2, id="nodes of an older version tell nothing"),
    ],
)
def test_it_stays_as_it_is(machine: Machine, told: list[Told]) -> None:
    assert machine.run(300, lambda *_: told) == []


def test_a_moment_between_two_jobs_doesn_t_count(machine: Machine) -> None:
    """A look now and then finds a thread without a batch."""
    machine.run(GROW_AFTER + 1, lambda nodes, at: [FULL] * (nodes - 1) + [Told(0.8, 3.0) if at % 3 == 1 else FULL])
    assert [by for _, by in machine.steps] == [1]


def test_one_look_without_late_jobs_begins_anew(machine: Machine) -> None:
    assert machine.run(60, lambda nodes, at: [FULL if at % 9 else FULL._replace(late=0.0)] * nodes) == []


def test_it_shrinks_by_one_after_a_quiet_minute_down_to_the_least(machine: Machine) -> None:
    assert machine.run(SHRINK_AFTER, all_of(IDLE)) == []
    (step,) = machine.run(1, all_of(IDLE))
    assert step == (-1, "for 60 s no job was late, and at most 0% of the threads were busy")
    assert machine.run(1000, all_of(IDLE)) == []
    assert machine.nodes == 1


def test_a_late_job_keeps_all_nodes_whoever_is_idle(machine: Machine) -> None:
    assert machine.run(300, lambda *_: [IDLE, IDLE._replace(late=5.0)]) == []
    assert machine.run(300, lambda _, at: [IDLE, IDLE._replace(late=5.0 if at % 50 == 0 else 0.0)]) == []


@pytest.mark.parametrize(("busy", "steps"), [(15, 0), (8, 0), (7, 1), (0, 1)])
def test_it_shrinks_only_if_the_others_would_have_room_left(busy: int, steps: int) -> None:
    """Eight of fifteen threads would be more than three quarters of ten."""
    machine = Machine(nodes=3)
    shares = [min(5, max(0, busy - 5 * at)) for at in range(3)]
    machine.run(SHRINK_AFTER + 1, lambda *_: [Told(share / 5, 0.0) for share in shares])
    assert len(machine.steps) == steps


def test_the_busiest_ten_seconds_of_the_minute_count(machine: Machine) -> None:
    """Half an hour in which all threads are busy for ten seconds of each minute, and no job is late."""
    busy = FULL._replace(late=0.0)
    assert machine.run(1800, lambda nodes, at: [busy if at % 60 < 11 else IDLE] * nodes) == []


@pytest.mark.parametrize("work", [1, 3, 4, 5, 6, 7, 9, 11, 14, 17, 22, 26, 33, 39, 40, 60])
@pytest.mark.parametrize("start", [1, 4, 8])
def test_a_steady_load_is_followed_once_and_never_back(work: int, start: int) -> None:
    """So many batches at any time, as far as there are threads; the rest is late."""
    machine = Machine(nodes=start)

    def told(nodes: int, _: float) -> list[Told]:
        shares = [work // nodes + (at < work % nodes) for at in range(nodes)]
        return [Told(min(share / 5, 1.0), 9.0 if work > 5 * nodes else 0.0) for share in shares]

    machine.run(1800, told)
    assert len({by for _, by in machine.steps}) <= 1, f"it grew and shrank: {machine.steps}"
    assert machine.nodes == 8 or machine.nodes * 5 >= work
    assert all(at < 500 for at, _ in machine.steps), "it comes to rest"


@pytest.mark.parametrize("seconds", [30, 3600])
def test_after_a_sleep_of_the_machine_it_begins_anew(machine: Machine, seconds: float) -> None:
    machine.run(GROW_AFTER, all_of(FULL))
    machine.now += seconds
    assert machine.run(GROW_AFTER, all_of(FULL)) == []
    assert len(machine.run(1, all_of(FULL))) == 1


def test_what_was_before_a_step_or_while_a_node_was_away_counts_for_nothing(machine: Machine) -> None:
    machine.run(GROW_AFTER, all_of(FULL))
    machine.load.forget()
    assert machine.run(GROW_AFTER, all_of(FULL)) == []
    assert len(machine.run(1, all_of(FULL))) == 1
