"""
Shutdown: the order in which everything ends, the deadlines, and the exit code.

Nodes end first, then the web view, the embedded Redis last; nothing is waited for without a limit. Reaping is the
business of Children.
"""

from __future__ import annotations

import signal
import time

from lowkiq.environment import ExitCode
from lowkiq.log import get_logger
from lowkiq_supervisor.processes.slots import Slot, Slots, State

#: Seconds between the order to abandon everything and the kill: two for the jobs, which is what a node gives them,
#: and some for the node to give its leases back.
ABANDON_GRACE = 2.5

log = get_logger("supervisor")


class Shutdown:
    """The way from running to gone. Before `drain` is called it only kills what has missed a deadline."""

    def __init__(self, slots: Slots, *, drain_timeout: float) -> None:
        self._slots = slots
        self._drain_timeout = drain_timeout
        self._reason = ExitCode.DRAINED
        self._forced = False
        self.draining = False
        self.abandoned = False

    @property
    def exit_code(self) -> ExitCode:
        """The supervisor's exit code, now that everything has ended."""
        if self.abandoned:
            return ExitCode.ABANDONED
        if self._reason is not ExitCode.DRAINED:
            return self._reason
        if self._forced:
            return ExitCode.FORCED_KILL
        # Nobody asked it to stop: it is over because there is nothing left to run. Then a lost slot is a failure.
        if not self.draining and any(slot.given_up for slot in self._slots.nodes):
            return ExitCode.CRASH_LOOP
        return ExitCode.DRAINED

    @property
    def longest(self) -> float:
        """Seconds that everything may take to end."""
        return max(slot.grace for slot in self._slots.nodes) + sum(slot.grace for slot in self._slots.companions)

    def drain(self, why: str, reason: ExitCode = ExitCode.DRAINED) -> None:
        """Tell every node to finish what it runs. The first reason to stop is the one that counts."""
        if self.draining:
            return
        self.draining = True
        self._reason = reason
        log.info("draining", why=why, timeout=self._drain_timeout)
        for slot in self._slots.of_nodes:
            _end(slot, slot.grace)

    def abandon(self, why: str) -> None:
        """Stop waiting for jobs: what is claimed will be run again by others."""
        if self.abandoned:
            return
        self.drain(why)
        self.abandoned = True
        log.warning("abandoning", why=why, grace=ABANDON_GRACE)
        deadline = time.monotonic() + ABANDON_GRACE
        for slot in self._slots.of_nodes:
            if slot.child is not None and slot.child.booted:  # without handlers, QUIT would only leave a core file
                slot.child.send(signal.SIGQUIT)
            slot.leave(deadline)
        if self._slots.web is not None:  # there is nothing left to watch
            _end(self._slots.web, ABANDON_GRACE)
        if self._slots.redis is not None and self._slots.redis.leaving:
            self._slots.redis.leave(deadline)

    def ended(self, slot: Slot, code: int) -> None:
        """A process that was told to end has done so; a node says with FORCED_KILL that it left jobs running."""
        self._forced |= code == ExitCode.FORCED_KILL and self._counts(slot)

    def _counts(self, slot: Slot) -> bool:
        """Returns whether its end is one of the supervisor's: not the view's, nor that of one node fewer before."""
        return slot is not self._slots.web and (self.draining or not slot.is_surplus)

    def kill_what_is_overdue(self) -> None:
        """Kill each process that has missed its deadline, whatever that was for."""
        now = time.monotonic()
        for slot in self._slots.all:
            if slot.child is None or slot.kill_at is None or slot.kill_at > now:
                continue
            log.error("missed_deadline", slot=slot.title, pid=slot.child.pid, state=slot.state.value, hint="killed")
            slot.child.kill()
            slot.kill_at = None
            slot.state = State.KILLED
            self._forced |= slot.leaving and self._counts(slot)

    def end_companions(self) -> None:
        """End each when all before it have ended: people watch nodes drain, and nodes settle jobs in Redis."""
        before = self._slots.of_nodes
        for slot in self._slots.companions:
            if any(other.state is not State.EXITED for other in before):
                return
            if not slot.leaving:
                _end(slot, ABANDON_GRACE if self.abandoned else slot.grace)
            before = [*before, slot]


def _end(slot: Slot, grace: float) -> None:
    if slot.child is not None:
        slot.child.send(slot.end_signal)
    slot.leave(time.monotonic() + grace)
