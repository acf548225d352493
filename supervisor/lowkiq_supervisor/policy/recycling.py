"""
Recycling: which node has become too big, too old or has run enough jobs, and is to be replaced while it is healthy.

Pure but for looking at a process's memory. One node at a time is the business of Turnover.
"""

from __future__ import annotations

import contextlib
import time

import psutil

from lowkiq_supervisor.options import Options
from lowkiq_supervisor.processes.child import Child
from lowkiq_supervisor.processes.slot import Slot, State

#: Seconds between two looks at the memory of the nodes, if there is a limit: a leak takes minutes.
RSS_INTERVAL = 5.0


class Recycling:
    """The limits. Each process has its own share of them (0.9 to 1.1), so that not all reach them together."""

    def __init__(self, options: Options) -> None:
        self._max_rss = options.max_rss
        self._max_jobs = options.max_jobs
        self._max_age = options.max_age
        self._look_at = time.monotonic()

    def due(self, slots: list[Slot]) -> tuple[Slot, str] | None:
        """The first node that is over a limit, and which; nobody, while one of the others is away already."""
        if _somebody_is_away(slots):
            return None
        looks_at_memory = self._max_rss is not None and time.monotonic() >= self._look_at
        if looks_at_memory:
            self._look_at = time.monotonic() + RSS_INTERVAL
        for slot in slots:
            if slot.works and slot.child is not None:
                why = self._over(slot.child) or (self._too_big(slot.child) if looks_at_memory else "")
                if why:
                    return slot, why
        return None

    def deadlines(self, slots: list[Slot]) -> list[float]:
        """The times at which to look again; jobs come with beats, and so does a node that was away."""
        if _somebody_is_away(slots):
            return []
        times = [self._look_at] if self._max_rss is not None else []
        if self._max_age is not None:
            children = [slot.child for slot in slots if slot.works and slot.child is not None]
            times += [child.started_at + self._max_age * child.limit_share for child in children]
        return times

    def _over(self, child: Child) -> str:
        if self._max_jobs is not None and child.jobs >= self._max_jobs * child.limit_share:
            return f"{child.jobs} jobs, about {self._max_jobs} allowed"
        age = time.monotonic() - child.started_at
        if self._max_age is not None and age >= self._max_age * child.limit_share:
            return f"{age:.0f} s old, about {self._max_age:.0f} s allowed"
        return ""

    def _too_big(self, child: Child) -> str:
        used = rss(child.pid)
        if self._max_rss is None or used is None or used < self._max_rss * child.limit_share:
            return ""
        return f"{used / 2**20:.0f} MiB of memory, about {self._max_rss / 2**20:.0f} MiB allowed"


def _somebody_is_away(slots: list[Slot]) -> bool:
    return not all(slot.works or slot.state is State.EXITED for slot in slots)


def rss(pid: int) -> int | None:
    """Bytes of memory a process holds; None: it is gone, or there is no descriptor left to look with."""
    with contextlib.suppress(psutil.Error, OSError):
        return int(psutil.Process(pid).memory_info().rss)
    return None
