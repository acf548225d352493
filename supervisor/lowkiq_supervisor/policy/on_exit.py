"""On exit: a successor now, one later, or none, when a process has ended."""

from __future__ import annotations

import time
from dataclasses import dataclass

from lowkiq.log import get_logger
from lowkiq_supervisor.policy.last_resort import LastResort
from lowkiq_supervisor.policy.notices import FAILURES, Notices
from lowkiq_supervisor.policy.replacement import Replacement
from lowkiq_supervisor.policy.shutdown import Shutdown
from lowkiq_supervisor.processes.bulletins import Bulletins
from lowkiq_supervisor.processes.child import Child
from lowkiq_supervisor.processes.end_hook import EndHooks
from lowkiq_supervisor.processes.slots import Slot, Slots
from lowkiq_supervisor.restart_policy import Action, End, Kind, Verdict

log = get_logger("supervisor")


@dataclass(frozen=True, slots=True)
class OnExit:
    """Acts on each end of a process."""

    slots: Slots
    shutdown: Shutdown
    replacement: Replacement
    last_resort: LastResort
    notices: Notices
    bulletins: Bulletins
    end_hooks: EndHooks

    def __call__(self, slot: Slot, end: End, child: Child) -> None:
        if child.page is not None:
            self.bulletins.died((slot.beside or slot).dead_nodes[-1])
        facts: dict[str, object] = {
            "slot": slot.title,
            "pid": child.pid,
            "node": child.name or None,
            "reason": slot.last_exit,
        }
        if slot in self.slots.hooks:
            self.end_hooks.call_ended(slot, end)
        elif slot.leaving:
            slot.exit()
            self.shutdown.ended(slot, end.code)
            if slot.is_surplus:
                self.slots.temporary.remove(slot)
            log.info("ended", **facts)
        elif slot.replaced_for:
            self._end_for_successor(slot, slot.beside or slot, end, facts)
        elif slot.beside is not None:
            verdict = self._judge(slot, end)
            log.warning("successor_ended", **facts, kind=verdict.kind, meaning=slot.why)
            self.replacement.successor_ended(slot, verdict, is_over=verdict.action is Action.FINISH)
        else:
            self._decide(slot, end, facts)
        if not slot.leaving or (slot.is_surplus and not self.shutdown.draining):  # the end of everything is no news
            self.end_hooks.ended(slot, child, slot.why)

    def no_fork(self, slot: Slot, error: OSError) -> None:
        """There is no process or descriptor to be had, which is nobody's failure."""
        delay = slot.history.delay(Kind.KILLED)
        slot.last_exit, slot.last_kind = f"can't fork: {error}", None
        slot.schedule(time.monotonic() + delay)
        log.error("cannot_fork", slot=slot.title, error=str(error), retry_in=round(delay, 2))

    @staticmethod
    def _judge(slot: Slot, end: End) -> Verdict:
        verdict = slot.history.ended(end)
        slot.last_kind = verdict.kind
        if slot.history.failures <= 1:
            slot.failing_since = time.time()
        return verdict

    def _end_for_successor(self, slot: Slot, place: Slot, end: End, facts: dict[str, object]) -> None:
        """A process that was told to go has ended."""
        why, slot.replaced_for = slot.replaced_for, ""
        place.last_exit, place.last_kind = slot.last_exit, None
        if slot is place:
            self.replacement.ended_for_successor(slot)
        else:
            self.replacement.predecessor_ended(slot)
        if end.ran_jobs and end.code:
            self.notices.happened(
                f"recycling: {place.title} was cut off when replaced ({why}): {slot.last_exit}; its jobs run again"
            )
            log.error("cut_off_for_successor", **facts, why=why, hint="its jobs run again; for them it is a crash")
        else:
            log.info("ended_for_successor", **facts, why=why)

    def _decide(self, slot: Slot, end: End, facts: dict[str, object]) -> None:
        """A process has ended by itself: fill the slot again, or not."""
        verdict = self._judge(slot, end)
        facts |= {"kind": verdict.kind, "meaning": slot.why}
        has_failed = verdict.action in {Action.RESTART, Action.GIVE_UP}
        slot.failures += has_failed
        if has_failed and slot.history.failures == FAILURES:
            log.error("keeps_failing", **facts, failures=FAILURES)
        if self.replacement.takes_over(slot):
            log.warning("died_successor_takes_over", **facts)
            return
        match verdict.action:
            case Action.FINISH:
                slot.ever_ready = True
                slot.exit()
                log.info("finished", **facts)
            case Action.REPLACE:
                slot.replacements += 1
                slot.schedule(time.monotonic())
                log.info("recycled", **facts)
            case Action.RESTART:
                slot.schedule(time.monotonic() + verdict.delay)
                log.warning("died_will_restart", **facts, restart_in=round(verdict.delay, 2))
            case Action.GIVE_UP:
                slot.exit(given_up=True)
                log.error("died_wont_restart", **facts)
        if has_failed:
            self.replacement.failed(slot, verdict)
            self.last_resort.failed(slot)
