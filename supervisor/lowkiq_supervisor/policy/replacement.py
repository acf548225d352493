"""
Replacement: a process that is well gives way to another, successor first. One way for rolling restarts, the restart of
one slot, and recycling; a process that has ended is the restart policy's business.

1. A successor is started beside the process, in a temporary slot. It stands by: leases keep both from the same jobs.
2. When it is ready, the two change places, and the predecessor is told: to drain, within a deadline, if a person wants
   it gone; to retire, which has none, if it has only grown too big, too old or has run enough.
3. When the predecessor is gone, the successor must stay ready for a while (the soak); then comes the next slot.

If a successor fails at boot or in the soak, a rolling restart stops there: nobody else is touched until a person says
so. The web view's successor needs its port: there the old process ends first. One replacement begins at a time.
"""

from __future__ import annotations

import signal
import time
from collections import deque
from collections.abc import Callable, Iterable

from lowkiq.log import get_logger
from lowkiq_supervisor.policy.roll import Phase, Roll, Step
from lowkiq_supervisor.processes.slots import Slot, Slots, State
from lowkiq_supervisor.restart_policy import TRIED_SOON, Verdict

#: Tries of a successor that is killed from outside, or by jobs: the new code may be the reason after all.
TRIES = 5
#: Seconds after which people are told which jobs keep a retiring process.
LONG_RETIREMENT = 600.0

log = get_logger("supervisor")


class Replacement:
    """
    The one step under way, and the rolling restart it may belong to.

    Args:
        soak: seconds that a successor must stay ready.
        on_roll: called with True when a rolling restart begins or goes on, with False when it is over or stopped.
    """

    def __init__(self, slots: Slots, soak: float, on_roll: Callable[[bool], None]) -> None:
        self._slots = slots
        self._soak = soak
        self._on_roll = on_roll
        self._step: Step | None = None
        self._recycle_from = 0.0
        #: Processes that have been retiring for so long that people were told.
        self.told_of: set[int] = set()
        #: The last rolling restart.
        self.roll: Roll | None = None

    @property
    def is_rolling(self) -> bool:
        """True during a rolling restart; recycling is none."""
        return self.roll is not None and self.roll.is_running

    @property
    def current(self) -> Slot | None:
        """The slot whose process is being replaced."""
        return self._step.slot if self._step is not None else None

    # ── what is asked for ───────────────────────────────────────────────────────────────────────────────────────────

    def roll_over(self, slots: Iterable[Slot], why: str) -> Roll:
        """
        Replace the processes of these. A slot that already waits for its turn isn't queued twice: asked again during a
        roll, everything that was started before is replaced once more, and nothing else.
        """
        if self.roll is not None and self.roll.is_running:
            is_ending = self._step is not None and self._step.phase is Phase.ENDING
            waiting = [*self.roll.left, *([self._step.slot] if is_ending and self._step else [])]
            self.roll.left.extend(slot for slot in slots if slot not in waiting)
            return self.roll
        self.roll = Roll(self.roll.number + 1 if self.roll else 1, why, deque(slots))
        self._begin_roll(self.roll)
        return self.roll

    def resume(self) -> Roll | None:
        """Go on with the slots that a stopped roll has left; None: there is none."""
        if self.roll is None or not self.roll.stopped:
            return None
        self.roll.stopped = ""
        self._begin_roll(self.roll)
        return self.roll

    def recycle_from(self) -> float | None:
        """When the next process may be recycled; None: not as long as another is being replaced, or retires."""
        return None if self._step is not None or self.is_rolling or self._slots.temporary else self._recycle_from

    def recycle(self, slot: Slot, why: str) -> None:
        """Replace this one's process, which is to finish its jobs."""
        self._begin(slot, why, is_recycling=True)

    def cancel(self) -> None:
        """Everything ends."""
        self._step = None
        if self.roll is not None and self.roll.is_running:
            self.roll.stopped = "everything ends"
            self._on_roll(False)

    # ── what happens ────────────────────────────────────────────────────────────────────────────────────────────────

    def became_ready(self, slot: Slot) -> None:
        """A process has become ready."""
        step = self._step
        if step is None or step.phase is not Phase.BOOTING or slot is not (step.beside or step.slot):
            return
        if slot.child is None or slot.child.is_reaped:
            return
        if step.beside is None:
            self._begin_soak(step)
        else:
            self._hand_over(step, step.beside)

    def takes_over(self, slot: Slot) -> bool:
        """The slot's process has ended by itself: if its successor is on its way, that comes in its place now."""
        step = self._step
        if step is None or step.slot is not slot or step.phase is not Phase.BOOTING or step.beside is None:
            return False
        slot.swap(step.beside)
        slot.starts += step.beside.starts
        self._slots.temporary.remove(step.beside)
        step.beside = None
        return True

    def failed(self, slot: Slot, verdict: Verdict) -> None:
        """A slot's process has ended by itself: if it was a successor, the others are better left alone."""
        step = self._step
        if step is None or slot is not step.slot:
            return
        if not self._is_tried_again(step, verdict):
            self._give_up(step, slot.why)
        elif step.phase is Phase.SOAKING or step.beside is None:
            step.phase = Phase.BOOTING  # and soak anew

    def successor_ended(self, beside: Slot, verdict: Verdict, *, is_over: bool) -> None:
        """The process in a temporary slot has ended before it was ready."""
        step = self._step
        if step is None or step.beside is not beside:  # everything ends
            self._slots.temporary.remove(beside)
        elif is_over:
            self._slots.temporary.remove(beside)
            self._finish(step)
        elif self._is_tried_again(step, verdict):
            beside.schedule(time.monotonic() + verdict.delay)
        else:
            self._slots.temporary.remove(beside)
            self._recycle_from = time.monotonic() + verdict.delay
            self._give_up(step, beside.why)

    def predecessor_ended(self, beside: Slot) -> None:
        """The process that was told to go has ended."""
        self._slots.temporary.remove(beside)
        self._recycle_from = time.monotonic() + self._soak
        if self._step is not None and self._step.beside is beside:
            self._step.beside = None
            self._begin_soak(self._step)

    def ended_for_successor(self, slot: Slot) -> None:
        """The web view's process has ended: now its port is free."""
        slot.replacements += 1
        slot.schedule(time.monotonic())
        if self._step is not None and self._step.slot is slot:
            self._step.phase = Phase.BOOTING

    def advance(self) -> None:
        """Begin with the next one, if it is time for that."""
        now = time.monotonic()
        step = self._step
        is_soaked = step is not None and step.phase is Phase.SOAKING and now >= step.until
        # One that drains by itself will end soon, and has failed then.
        if step is not None and is_soaked and (step.slot.works or step.slot.is_over):
            self._finish(step)
        while self._step is None and self.roll is not None and self.roll.is_running and self.roll.left:
            self._begin(self.roll.left.popleft(), self.roll.why)
        if self._step is None and self.roll is not None and self.roll.is_running:
            self.roll.is_over = True
            log.info("rolling_restart_over", slots=[slot.title for slot in self.roll.done])
            self._on_roll(False)
        self._tell_of_long_retirements(now)

    def deadlines(self) -> list[float]:
        """The times at which something is due."""
        told = [at + LONG_RETIREMENT for _, pid, at in self._retiring() if pid not in self.told_of]
        is_soaking = self._step is not None and self._step.phase is Phase.SOAKING and self._step.slot.works
        return [*told, *([self._step.until] if self._step is not None and is_soaking else [])]

    # ── the steps ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _begin_roll(self, roll: Roll) -> None:
        log.info("rolling_restart", why=roll.why, slots=[slot.title for slot in roll.left])
        self._on_roll(True)

    def _begin(self, slot: Slot, why: str, *, is_recycling: bool = False) -> None:
        now = time.monotonic()
        if slot.is_over or slot.leaving or slot.state is State.WAITING:  # for Redis: it will start anew anyway
            return
        if slot.child is None:
            self._step = Step(slot, why, Phase.BOOTING)
            slot.revive(now)
            log.info("tried_at_once", slot=slot.title, why=why)
            return
        log.info("replacing", slot=slot.title, pid=slot.child.pid, why=why)
        if slot is self._slots.web:
            self._step = Step(slot, why, Phase.ENDING)
            slot.make_room(why, now + slot.grace)
            slot.child.send(signal.SIGTERM)
            return
        beside = slot.another(why)
        self._slots.temporary.append(beside)
        beside.schedule(now)
        self._step = Step(slot, why, Phase.BOOTING, is_recycling, beside)

    def _hand_over(self, step: Step, beside: Slot) -> None:
        slot = step.slot
        slot.swap(beside)
        slot.starts += beside.starts
        slot.replacements += 1
        slot.ever_ready = True
        old, new = beside.child, slot.child
        assert old is not None and new is not None  # noqa: S101 - one that ends is taken out of its slot at once
        facts = {"node": old.name or None, "to": new.pid, "why": step.why, "recycling": step.is_recycling}
        log.info("handing_over", slot=slot.title, pid=old.pid, **facts)
        if step.is_recycling:
            beside.make_room(step.why, None)
            old.told_at = time.monotonic()
            old.send(signal.SIGHUP)
            self._finish(step)  # a long job may keep it: that is no reason for a person's roll to wait
        else:
            beside.make_room(step.why, time.monotonic() + slot.grace)
            old.send(signal.SIGTERM)
            step.phase = Phase.HANDING_OVER

    def _begin_soak(self, step: Step) -> None:
        # One that died meanwhile is awaited: the restart policy brings it back.
        step.phase = Phase.SOAKING if step.slot.child is not None and step.slot.child.booted else Phase.BOOTING
        step.until = time.monotonic() + self._soak

    def _finish(self, step: Step) -> None:
        self._step = None
        if self.roll is not None and not step.is_recycling:
            self.roll.done.append(step.slot)

    @staticmethod
    def _is_tried_again(step: Step, verdict: Verdict) -> bool:
        """True for an end that doesn't show a fault of the successor, a few times."""
        step.tries += 1
        return verdict.kind in TRIED_SOON and step.tries <= TRIES

    def _give_up(self, step: Step, how: str) -> None:
        self._step = None
        if step.is_recycling:
            log.error("successor_failed", slot=step.slot.title, reason=how, hint="its predecessor stays for now")
        elif self.roll is not None:
            self.roll.left.appendleft(step.slot)
            self._stop_roll(f"the successor of {step.slot.title} failed: {how}")

    def _stop_roll(self, reason: str) -> None:
        assert self.roll is not None  # noqa: S101 - only a running roll is stopped
        self.roll.stopped = reason
        done, left = ([slot.title for slot in slots] for slots in (self.roll.done, self.roll.left))
        hint = "the others go on with what they had; when it is mended: lowkiq-supervisor restart --resume"
        log.error("roll_stopped", reason=reason, done=done, left=left, hint=hint)
        self._on_roll(False)

    # ── retirement ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _retiring(self) -> list[tuple[Slot, int, float]]:
        """Slots of retiring processes, their pids, and since when they retire."""
        children = [(slot, slot.child) for slot in self._slots.temporary]
        return [(slot, child.pid, child.told_at) for slot, child in children if child and child.told_at is not None]

    def _tell_of_long_retirements(self, now: float) -> None:
        retiring = self._retiring()
        self.told_of &= {pid for _, pid, _ in retiring}
        for slot, pid, since in retiring:
            if pid not in self.told_of and now >= since + LONG_RETIREMENT:
                self.told_of.add(pid)
                hint = "it is replaced already, and ends after these jobs; nobody else is recycled until then"
                log.warning("retires_for_long", slot=slot.title, pid=pid, runs=slot.runs(), hint=hint)
