"""The order in which nodes are replaced, and which of them are recycled, without processes."""

from __future__ import annotations

import errno
import signal
from collections import deque
from typing import Any

import psutil
import pytest

from lowkiq_supervisor.options import Options
from lowkiq_supervisor.policy.limits import HangLimits, RecyclingLimits, rss
from lowkiq_supervisor.policy.replacement import Replacement
from lowkiq_supervisor.processes.beat_pipe import Beat
from lowkiq_supervisor.processes.child import Child
from lowkiq_supervisor.processes.slots import Slot, Slots, State
from lowkiq_supervisor.restart_policy import Action, Kind, RestartHistory, RestartPolicy, Verdict


class Process(Child):
    """A child that only remembers its signals."""

    def __init__(self) -> None:
        super().__init__(pid=0, pidfd=None, beats=None)  # type: ignore[arg-type]
        self.sent: list[signal.Signals] = []

    def send(self, signum: signal.Signals) -> None:
        self.sent.append(signum)


def working_slot(title: str) -> Slot:
    slot = Slot(title=title, history=RestartHistory(RestartPolicy()), launch=lambda _: Process(), grace=10)
    slot.filled(Process())
    assert slot.enter(State.READY)
    return slot


@pytest.fixture
def slots() -> list[Slot]:
    return [working_slot(name) for name in "abc"]


class Replacing(Replacement):
    """Three slots, whose order and rolls are noted."""

    def __init__(self, slots: list[Slot]) -> None:
        self.rolls: list[bool] = []
        self.places = Slots(nodes=slots)
        super().__init__(self.places, 0, self.rolls.append)

    def succeed(self) -> Slot | None:
        """The replacement under way goes well; the slot it was for."""
        self.advance()
        if (place := self.current) is None:
            return None
        (beside,) = self.places.temporary
        predecessor, successor = place.child, Process()
        beside.filled(successor)
        assert beside.enter(State.READY)
        self.became_ready(beside)
        assert (place.child, beside.child) == (successor, predecessor)
        assert isinstance(predecessor, Process)
        assert predecessor.sent == [signal.SIGTERM]
        assert not beside.enter(State.READY), "the old process says so while it ends: that doesn't count"
        beside.emptied("exit code 0")
        self.predecessor_ended(beside)
        return place


def test_one_after_another(slots: list[Slot]) -> None:
    replacing = Replacing(slots)
    replacing.roll_over(slots, "HUP")
    assert [replacing.succeed() for _ in range(4)] == [*slots, None]
    assert replacing.rolls == [True, False]
    assert replacing.places.temporary == []


def test_asked_again_only_what_was_started_before_is_renewed_once_more(slots: list[Slot]) -> None:
    replacing = Replacing(slots)
    first = replacing.roll_over(slots, "HUP")
    seen = [replacing.succeed(), replacing.succeed()]
    replacing.advance()
    assert replacing.current is slots[2]
    for _ in range(2):
        assert replacing.roll_over(slots, "HUP") is first
    assert first.left == deque(slots)
    seen += [replacing.succeed() for _ in range(5)]
    assert seen == [*slots, *slots, None]
    assert replacing.rolls == [True, False]


def test_a_stopped_roll_goes_on_with_what_is_left_and_not_by_itself(slots: list[Slot]) -> None:
    replacing = Replacing(slots)
    roll = replacing.roll_over(slots, "HUP")
    assert replacing.succeed() is slots[0]
    replacing.advance()
    (beside,) = replacing.places.temporary
    beside.filled(Process())
    beside.emptied("exit code 3")
    replacing.successor_ended(beside, Verdict(Kind.REFUSED, Action.RESTART, 1), is_over=False)
    assert (list(roll.left), roll.done) == (slots[1:], slots[:1])
    assert "exit code 3" in roll.stopped
    assert replacing.succeed() is None
    assert replacing.resume() is roll
    assert [replacing.succeed() for _ in range(3)] == [*slots[1:], None]
    assert replacing.rolls == [True, False, True, False]
    assert replacing.resume() is None


def test_nobody_is_recycled_before_the_last_one_is_gone(slots: list[Slot]) -> None:
    replacing = Replacing(slots)
    replacing.recycle(slots[0], "old")
    assert replacing.recycle_from() is None
    (beside,) = replacing.places.temporary
    beside.filled(Process())
    assert beside.enter(State.READY)
    replacing.became_ready(beside)
    assert isinstance(beside.child, Process)
    assert (beside.child.sent, beside.kill_at) == ([signal.SIGHUP], None)
    assert replacing.current is None, "a roll by a person need not wait for it"
    assert replacing.recycle_from() is None
    beside.emptied("exit code 0")
    replacing.predecessor_ended(beside)
    assert replacing.recycle_from() is not None
    assert replacing.rolls == []


def test_without_a_free_descriptor_nobody_has_grown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A supervisor that fails here would end every node."""

    def no_descriptor(pid: int) -> None:
        raise OSError(errno.EMFILE, "Too many open files", "/proc/1/statm")

    monkeypatch.setattr(psutil, "Process", no_descriptor)
    assert rss(Process()) is None


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
