"""The order in which nodes are replaced, and which of them are recycled, without processes."""

from __future__ import annotations

import errno
import signal
from typing import Any

import psutil
import pytest

from lowkiq_supervisor.options import Options
from lowkiq_supervisor.policy.limits import HangLimits, RecyclingLimits, rss
from lowkiq_supervisor.policy.rolling_restart import RollingRestart
from lowkiq_supervisor.processes.beat_pipe import Beat
from lowkiq_supervisor.processes.child import Child
from lowkiq_supervisor.processes.slots import Slot, State
from lowkiq_supervisor.restart_policy import RestartHistory, RestartPolicy


class Process(Child):
    """A child that only remembers its signals."""

    def __init__(self) -> None:
        super().__init__(pid=0, pidfd=None, beats=None)  # type: ignore[arg-type]
        self.sent: list[signal.Signals] = []

    def send(self, signum: signal.Signals) -> None:
        self.sent.append(signum)


def working_slot(title: str) -> Slot:
    slot = Slot(title=title, history=RestartHistory(RestartPolicy()), launch=lambda _: Process(), grace=10)
    succeed(slot)
    return slot


def succeed(slot: Slot) -> None:
    """A (new) process is there and ready."""
    slot.replaced_for = ""
    slot.filled(Process())
    assert slot.enter(State.READY)


@pytest.fixture
def slots() -> list[Slot]:
    return [working_slot(name) for name in "abc"]


def rolling_restart() -> tuple[RollingRestart, list[bool]]:
    rolls: list[bool] = []
    return RollingRestart(rolls.append), rolls


def test_the_next_waits_until_the_successor_is_ready(slots: list[Slot]) -> None:
    order, rolls = rolling_restart()
    order.roll(slots, "HUP")
    seen = []
    while not order.idle:
        order.advance()
        current = order.current
        assert current is not None
        seen.append(current.title)
        order.became_ready(current)  # the old process says so while it ends: that doesn't count
        assert order.current is current
        succeed(current)
        order.became_ready(current)
    order.advance()
    assert seen == ["a", "b", "c"]
    assert rolls == [True, False]


def test_asked_again_only_what_was_started_before_is_renewed_once_more(slots: list[Slot]) -> None:
    order, rolls = rolling_restart()
    order.roll(slots, "HUP")
    seen = []
    order.advance()
    while (current := order.current) is not None:
        seen.append(current.title)
        if len(seen) == 2:
            order.roll(slots, "HUP")
            order.roll(slots, "HUP")
        succeed(current)
        order.became_ready(current)
        order.advance()
    assert seen == ["a", "b", "c", "a"]
    assert rolls == [True, False]


def test_recycling_waits_for_its_turn(slots: list[Slot]) -> None:
    order, rolls = rolling_restart()
    order.recycle(slots[0], "old")
    order.recycle(slots[1], "old")
    order.advance()
    assert order.current is slots[0]
    succeed(slots[0])
    order.became_ready(slots[0])
    order.advance()
    assert order.idle
    assert slots[1].state is State.READY
    assert rolls == []


def test_without_a_free_descriptor_nobody_has_grown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A supervisor that fails here would end every node."""

    def no_descriptor(pid: int) -> None:
        raise OSError(errno.EMFILE, "Too many open files", "/proc/1/statm")

    monkeypatch.setattr(psutil, "Process", no_descriptor)
    assert rss(1) is None


def recycling(**limits: Any) -> RecyclingLimits:
    return RecyclingLimits(Options(app="shop", **limits))


def test_each_process_has_its_own_share_of_a_limit(slots: list[Slot]) -> None:
    assert all(0.9 <= Process().limit_share <= 1.1 for _ in range(1000))
    for slot, share in zip(slots, (1.1, 1.0, 0.9), strict=True):
        assert slot.child is not None
        slot.child.limit_share = share
        slot.child.note(Beat("ready", 0, 95))
    over = recycling(max_jobs=100).due(slots)
    assert over == (slots[2], "95 jobs, about 100 allowed")


def test_nobody_is_recycled_while_another_is_away_and_nothing_is_due_then(slots: list[Slot]) -> None:
    limits = recycling(max_jobs=100, max_age=3600, max_rss=1 << 60)
    assert slots[1].child is not None
    slots[1].child.note(Beat("ready", 0, 1000))
    assert limits.due(slots)
    assert len(limits.deadlines(slots)) == 4
    slots[0].schedule(0)
    slots[0].child = None
    assert limits.due(slots) is None
    assert limits.deadlines(slots) == []


def test_a_silence_gets_a_second_chance_and_one_that_is_told_to_end_is_not_looked_at(slots: list[Slot]) -> None:
    hangs = HangLimits(hang_timeout=30, boot_timeout=120)
    for slot in slots:
        assert isinstance(slot.child, Process)
        slot.child.last_sign -= 31
    slots[2].kill_at = 0
    hangs.enforce(slots)
    assert [slot.child.silent_at is not None for slot in slots if slot.child] == [True, True, False]
    for slot in slots[:2]:
        assert isinstance(slot.child, Process)
        assert slot.child.silent_at is not None
        slot.child.silent_at -= 3
    assert isinstance(slots[0].child, Process)
    slots[0].child.note(Beat("ready"))
    hangs.enforce(slots)
    assert [slot.child.sent for slot in slots if isinstance(slot.child, Process)] == [[], [signal.SIGABRT], []]


def test_without_a_limit_silence_is_fine(slots: list[Slot]) -> None:
    assert HangLimits(hang_timeout=0, boot_timeout=0).deadlines(slots) == []
