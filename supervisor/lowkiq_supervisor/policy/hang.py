"""
Hang detection: a process whose main thread is silent for too long is dumped and killed.

It goes by beats only: a job may take as long as it likes, as long as the process can still tell that it is alive.
"""

from __future__ import annotations

import signal
import time

import structlog

from lowkiq_supervisor.processes.child import Child
from lowkiq_supervisor.processes.slot import Slot, State

#: Seconds between noticing a silence and acting on it. After the whole machine was frozen, everybody has been silent:
#: a node that is well speaks again by then.
SECOND_CHANCE = 2.0
#: Seconds between ABRT, at which faulthandler dumps every thread, and KILL.
DUMP_TIME = 5.0

log = structlog.stdlib.get_logger("supervisor")


class HangWatch:
    """
    Looks for silent processes.

    Args:
        hang_timeout: seconds of silence of one that has been ready; 0 is for ever.
        boot_timeout: seconds of silence of one that hasn't.
    """

    def __init__(self, hang_timeout: float, boot_timeout: float) -> None:
        self._hang_timeout = hang_timeout
        self._boot_timeout = boot_timeout

    def look(self, slots: list[Slot]) -> None:
        """End whoever is silent for too long."""
        now = time.monotonic()
        for slot in slots:
            child = slot.child
            if child is None or not self._is_watched(slot):
                continue
            limit = self._limit(child)
            if now - child.last_sign < limit:
                child.silent_at = None
            elif child.silent_at is None:
                child.silent_at = now
            elif now >= child.silent_at + self._second_chance(limit):
                self._end(slot, child, now)

    def deadlines(self, slots: list[Slot]) -> list[float]:
        """The times at which somebody will have been silent for too long."""
        times = []
        for slot in slots:
            if slot.child is not None and self._is_watched(slot):
                limit = self._limit(slot.child)
                silent_at = slot.child.silent_at
                second = self._second_chance(limit)
                times.append(slot.child.last_sign + limit if silent_at is None else silent_at + second)
        return times

    @staticmethod
    def _second_chance(limit: float) -> float:
        return min(SECOND_CHANCE, limit)

    def _is_watched(self, slot: Slot) -> bool:
        """One that was told to end has its deadline already."""
        if slot.child is None or slot.kill_at is not None or slot.state is State.KILLED:
            return False
        return self._limit(slot.child) > 0

    def _limit(self, child: Child) -> float:
        return self._hang_timeout if child.booted else self._boot_timeout

    @staticmethod
    def _end(slot: Slot, child: Child, now: float) -> None:
        silence = now - child.last_sign
        child.ended_for = f"hung, no beat for {silence:.1f} s"
        log.error("hung, aborting it with a dump of its threads", slot=slot.title, pid=child.pid, silence=silence)
        child.send(signal.SIGABRT)
        slot.kill_at = now + DUMP_TIME
