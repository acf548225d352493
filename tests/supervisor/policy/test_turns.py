"""The order in which nodes are replaced, and which of them are recycled, without processes."""

from __future__ import annotations

import errno
import signal
import time
from collections import deque
from typing import Any

import psutil
import pytest

from lowkiq_supervisor.options import Options
from lowkiq_supervisor.policy.limits import HangLimits, RecyclingLimits, rss
from lowkiq_supervisor.policy.replacement import LONG_RETIREMENT, TRIES, Replacement
from lowkiq_supervisor.processes.beat_pipe import Beat
from lowkiq_supervisor.processes.child import Child
from lowkiq_supervisor.processes.slots import Slot, Slots, State
from lowkiq_supervisor.restart_policy import Action, Kind, RestartHistory, RestartPolicy, Verdict


class Process(Child):
    """A child that only remembers its signals."""

    def __init__(self) -> None:
        super().__init__(pid=0, pidfd=None, beats=None)  # type: ignore[arg-type]
        self.signals: list[signal.Signals] = []

    def send(self, signum: signal.Signals) -> None:
        self.signals.append(signum)


def working_slot(title: str) -> Slot:
    slot = Slot(title=title, history=RestartHistory(RestartPolicy()), launch=lambda _: Process(), grace=10)
    slot.filled(Process())
    assert slot.enter(State.READY)
    return slot


@pytest.fixture
def slots() -> list[Slot]:
    return [working_slot(name) for name in "abc"]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time of all that is asked here; it stands still."""
    now = [time.monotonic()]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


class Replacing(Replacement):
    """Three slots, whose order and rolls are noted."""

    def __init__(self, slots: list[Slot], soak: float = 0) -> None:
        self.rolls: list[bool] = []
        self.places = Slots(nodes=slots)
        super().__init__(self.places, soak, self.rolls.append)

    @property
    def beside(self) -> Slot:
        """The temporary slot."""
        (beside,) = self.places.temporary
        return beside

    def hand_over(self) -> Slot:
        """The successor of the slot that is being replaced has become ready; the slot that has the predecessor."""
        beside = self.beside
        beside.filled(Process())
        assert beside.enter(State.READY)
        self.became_ready(beside)
        return beside

    def end_predecessor(self, beside: Slot) -> None:
        beside.emptied("exit code 0")
        self.predecessor_ended(beside)

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
        assert predecessor.signals == [signal.SIGTERM]
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
    assert (beside.child.signals, beside.kill_at) == ([signal.SIGHUP], None)
    assert replacing.current is None, "a roll by a person need not wait for it"
    assert replacing.recycle_from() is None
    beside.emptied("exit code 0")
    replacing.predecessor_ended(beside)
    assert replacing.recycle_from() is not None
    assert replacing.rolls == []


def test_nobody_is_recycled_before_the_first_turn_of_a_roll(slots: list[Slot]) -> None:
    replacing = Replacing(slots)
    replacing.roll_over(slots, "HUP")
    assert replacing.recycle_from() is None


def test_the_next_one_waits_until_the_old_process_has_ended_and_its_successor_was_ready_for_the_soak(
    slots: list[Slot], clock: list[float]
) -> None:
    replacing = Replacing(slots, soak=10)
    replacing.roll_over(slots[:2], "HUP")
    replacing.advance()
    old = replacing.hand_over()
    clock[0] += 100
    replacing.advance()
    assert replacing.current is slots[0], "the old process runs still"
    replacing.end_predecessor(old)
    for seconds in (0, 9):
        clock[0] += seconds
        replacing.advance()
        assert replacing.current is slots[0]
    assert slots[0].child
    slots[0].child.silent_at = clock[0]
    clock[0] += 1
    replacing.advance()
    assert replacing.current is slots[0], "it does not work any more"
    slots[0].child.silent_at = None
    replacing.advance()
    assert replacing.current is slots[1]


def test_a_successor_that_others_kill_is_tried_a_few_times(slots: list[Slot]) -> None:
    replacing = Replacing(slots)
    roll = replacing.roll_over(slots, "HUP")
    replacing.advance()
    for tries in range(TRIES):
        assert not roll.stopped, tries
        beside = replacing.beside
        beside.filled(Process())
        beside.emptied("killed by SIGKILL")
        replacing.successor_ended(beside, Verdict(Kind.KILLED, Action.RESTART, 1), is_over=False)
    assert "SIGKILL" in roll.stopped
    assert replacing.places.temporary == []


def test_a_node_that_dies_while_its_successor_boots_gives_it_its_place(slots: list[Slot]) -> None:
    replacing = Replacing(slots)
    assert not replacing.takes_over(slots[0])
    replacing.roll_over(slots[:1], "HUP")
    replacing.advance()
    successor = Process()
    replacing.beside.filled(successor)
    slots[0].emptied("killed by SIGKILL")
    assert not replacing.takes_over(slots[1])
    assert replacing.takes_over(slots[0])
    assert (slots[0].child, replacing.places.temporary) == (successor, [])
    assert slots[0].enter(State.READY)
    replacing.became_ready(slots[0])
    replacing.advance()
    replacing.advance()
    assert replacing.rolls == [True, False]


def test_recycling_whose_successor_fails_is_tried_again_after_the_delay(slots: list[Slot], clock: list[float]) -> None:
    replacing = Replacing(slots)
    replacing.recycle(slots[0], "old")
    beside = replacing.beside
    beside.filled(Process())
    beside.emptied("exit code 1")
    replacing.successor_ended(beside, Verdict(Kind.BOOT, Action.RESTART, 7.5), is_over=False)
    assert replacing.recycle_from() == clock[0] + 7.5


def test_only_the_successor_s_own_readiness_hands_over(slots: list[Slot]) -> None:
    replacing = Replacing(slots)
    replacing.roll_over(slots[:1], "HUP")
    replacing.advance()
    old = slots[0].child
    replacing.became_ready(slots[1])
    assert slots[0].child is old
    replacing.hand_over()
    assert slots[0].child is not old


def test_slots_that_wait_for_redis_or_leave_are_left_alone(slots: list[Slot]) -> None:
    replacing = Replacing(slots)
    slots[0].state = State.WAITING
    slots[1].leave(0.0)
    replacing.roll_over(slots, "HUP")
    replacing.advance()
    assert replacing.current is slots[2]


def test_the_end_of_everything_ends_a_roll(slots: list[Slot]) -> None:
    replacing = Replacing(slots)
    roll = replacing.roll_over(slots, "HUP")
    replacing.advance()
    replacing.cancel()
    assert (roll.is_running, replacing.current, replacing.rolls) == (False, None, [True, False])
    beside = replacing.beside
    replacing.successor_ended(beside, Verdict(Kind.KILLED, Action.RESTART), is_over=False)
    assert replacing.places.temporary == []


def test_of_a_long_retirement_people_are_told_once(
    slots: list[Slot], clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    replacing = Replacing(slots)
    replacing.recycle(slots[0], "old")
    old = replacing.hand_over()
    for _ in range(3):
        replacing.advance()
        clock[0] += LONG_RETIREMENT
    assert "".join(capsys.readouterr()).count("retires_for_long") == 1
    replacing.end_predecessor(old)
    replacing.advance()
    assert replacing.told_of == set()


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
    hangs.enforce(slots)
    assert [slot.child.silent_at is not None for slot in slots if slot.child] == [True, True, False]
    assert [slot.child.signals for slot in slots if isinstance(slot.child, Process)] == [[], [], []]
    for slot in slots[:2]:
        assert isinstance(slot.child, Process)
        assert slot.child.silent_at is not None
        slot.child.silent_at -= 3
    assert isinstance(slots[0].child, Process)
    slots[0].child.note(Beat("ready"))
    hangs.enforce(slots)
    assert [slot.child.signals for slot in slots if isinstance(slot.child, Process)] == [[], [signal.SIGABRT], []]


def test_without_a_limit_silence_is_fine(slots: list[Slot]) -> None:
    assert HangLimits(hang_timeout=0, boot_timeout=0).deadlines(slots) == []
