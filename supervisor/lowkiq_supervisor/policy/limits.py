"""
Limits: processes that have been silent for too long, and nodes that have become too big, too old or have run enough.

Responsible for ending the silent ones, and for naming a node that is to be replaced while it is healthy. Replacing it,
one at a time, is the business of Replacement.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass

import psutil

from lowkiq.log import get_logger
from lowkiq_supervisor.options import Options
from lowkiq_supervisor.processes.child import Child
from lowkiq_supervisor.processes.slots import Slot, State

#: Seconds between noticing a silence and acting on it. After the whole machine was frozen, everybody has been silent:
#: a node that is well speaks again by then.
SECOND_CHANCE = 2.0
#: Seconds between ABRT, at which faulthandler dumps every thread, and KILL.
DUMP_TIME = 5.0
#: Seconds between two looks at the memory of the nodes, if there is a limit: a leak takes minutes.
RSS_INTERVAL = 5.0

log = get_logger("supervisor")


@dataclass(frozen=True, slots=True)
class HangLimits:
    """
    Ends a process whose main thread is silent for too long, with a dump of its threads.

    It goes by beats only: a job may take as long as it likes, as long as the process can still tell that it is alive.
    """

    #: Seconds of silence of a process that has been ready; 0 is for ever.
    hang_timeout: float
    #: The same of one that hasn't.
    boot_timeout: float

    def enforce(self, slots: list[Slot]) -> None:
        now = time.monotonic()
        for slot, child, limit in self._watched(slots):
            if child.silent_at is None:
                child.silent_at = now if now - child.last_sign >= limit else None
            elif now >= child.silent_at + min(SECOND_CHANCE, limit):
                silence = now - child.last_sign
                child.ended_for = f"hung, no beat for {silence:.1f} s"
                log.error(
                    "hung",
                    slot=slot.title,
                    pid=child.pid,
                    node=child.name or None,
                    silence=silence,
                    hint="aborted with a dump",
                )
                child.send(signal.SIGABRT)
                slot.kill_at = now + DUMP_TIME

    def deadlines(self, slots: list[Slot]) -> list[float]:
        return [
            child.last_sign + limit if child.silent_at is None else child.silent_at + min(SECOND_CHANCE, limit)
            for _, child, limit in self._watched(slots)
        ]

    def _watched(self, slots: list[Slot]) -> Iterator[tuple[Slot, Child, float]]:
        """Processes with their limits; one that was told to end has its deadline already."""
        for slot in slots:
            child = slot.child
            if child is None or slot.kill_at is not None or slot.state is State.KILLED:
                continue
            limit = self.hang_timeout if child.booted else self.boot_timeout
            if limit > 0:
                yield slot, child, limit


class RecyclingLimits:
    """Names nodes to replace. Each process has its own share of the limits, so that not all reach them together."""

    def __init__(self, options: Options) -> None:
        self._max_rss, self._max_jobs, self._max_age = options.max_rss, options.max_jobs, options.max_age
        self._look_at = time.monotonic()

    def due(self, slots: list[Slot]) -> tuple[Slot, str] | None:
        """The first node that is over a limit, and which; None, while one of the others is away already."""
        if _any_is_away(slots):
            return None
        looks_at_memory = self._max_rss is not None and time.monotonic() >= self._look_at
        if looks_at_memory:
            self._look_at = time.monotonic() + RSS_INTERVAL
        for slot in slots:
            if slot.works and slot.child is not None and (why := self._over(slot.child, looks_at_memory)):
                return slot, why
        return None

    def deadlines(self, slots: list[Slot]) -> list[float]:
        """The times at which to look again; jobs come with beats, and so does a node that was away."""
        if _any_is_away(slots):
            return []
        times = [self._look_at] if self._max_rss is not None else []
        if self._max_age is not None:
            children = [slot.child for slot in slots if slot.works and slot.child is not None]
            times += [child.started_at + self._max_age * child.limit_share for child in children]
        return times

    def _over(self, child: Child, looks_at_memory: bool) -> str:
        if self._max_jobs is not None and child.last_beat.jobs >= self._max_jobs * child.limit_share:
            return f"{child.last_beat.jobs} jobs, about {self._max_jobs} allowed"
        age = time.monotonic() - child.started_at
        if self._max_age is not None and age >= self._max_age * child.limit_share:
            return f"{age:.0f} s old, about {self._max_age:.0f} s allowed"
        used = rss(child) if looks_at_memory else None
        if self._max_rss is not None and used is not None and used >= self._max_rss * child.limit_share:
            return f"{used / 2**20:.0f} MiB of memory, about {self._max_rss / 2**20:.0f} MiB allowed"
        return ""


def _any_is_away(slots: list[Slot]) -> bool:
    return not all(slot.works or slot.state is State.EXITED for slot in slots)


def rss(child: Child) -> int | None:
    """
    Bytes of memory a process holds, and of a node its helpers beyond what they share with their fork server. None: it
    is gone, or there is no descriptor left to look with.
    """
    held, groups = _held(child.pid), child.page.groups() if child.page is not None else []
    if held is None or not groups:
        return held
    server, *helpers = groups
    shared = _held(server) or 0
    return held + sum(max((_held(pid) or 0) - shared, 0) for pid in helpers)


def _held(pid: int) -> int | None:
    with contextlib.suppress(psutil.Error, OSError):
        return int(psutil.Process(pid).memory_info().rss)
    return None
