"""Status: the state of the supervisor and its processes, for people and probes."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from lowkiq.version import VERSION
from lowkiq_supervisor.events import Events
from lowkiq_supervisor.options import Options
from lowkiq_supervisor.policy.limits import rss
from lowkiq_supervisor.policy.replacement import Replacement
from lowkiq_supervisor.policy.scale import Scale
from lowkiq_supervisor.policy.shutdown import Shutdown
from lowkiq_supervisor.processes.slots import Slot, Slots


class Overall(StrEnum):
    """The supervisor's state in a word."""

    STARTING = "starting"
    RUNNING = "running"
    DEGRADED = "degraded"  # a node, Redis or the web view isn't there that should be
    QUIET = "quiet"
    ROLLING = "rolling"
    DRAINING = "draining"


#: States in which nothing is wrong: what is away was sent away.
HEALTHY = frozenset({Overall.RUNNING, Overall.QUIET, Overall.ROLLING})


@dataclass(slots=True)
class Report:
    """Reads it from the slots, and from the parts that act on them."""

    options: Options
    slots: Slots
    shutdown: Shutdown
    replacement: Replacement
    scale: Scale
    events: Events
    #: All that do the work have been ready at the same time: from then on, one that is missing is trouble.
    was_ready: bool = False
    _since: float = field(default_factory=time.monotonic)

    def overall(self) -> Overall:
        """The state, worst first."""
        if self.shutdown.draining:
            return Overall.DRAINING
        if any(self._is_missing(slot) for slot in self.slots.vital):
            has_trouble = self.was_ready or any(slot.failures for slot in self.slots.vital)
            return Overall.DEGRADED if has_trouble else Overall.STARTING
        self.was_ready = True
        web = self.slots.web
        # Its first start isn't waited for: it is trouble when it was there, or has failed to come.
        if web is not None and self._is_missing(web) and (web.ever_ready or web.failures > 0):
            return Overall.DEGRADED
        if self.replacement.is_rolling:
            return Overall.ROLLING
        return Overall.QUIET if self.slots.quiet else Overall.RUNNING

    def line(self) -> str:
        """One line for logs and the service manager."""
        ready = sum(slot.works for slot in self.slots.nodes)
        web = f", {self.slots.web.title} {self.slots.web.state.value}" if self.slots.web is not None else ""
        return f"{self.overall()}: {ready} of {len(self.slots.nodes)} nodes ready{web}"

    def title(self) -> str:
        """The process's title."""
        web = f", {self.slots.web.title}" if self.slots.web is not None else ""
        return f"lowkiq: supervisor {len(self.slots.nodes)} nodes{web} [{self.overall()}]"

    def as_json(self) -> dict[str, Any]:
        """Everything, for `status`."""
        return {
            "supervisor": {
                "pid": os.getpid(),
                "version": VERSION,
                "state": self.overall().value,
                "healthy": self.overall() in HEALTHY,
                "uptime": round(time.monotonic() - self._since, 3),
                "app": self.options.app,
                "nodes": len(self.slots.nodes),
                "number_of_nodes": len(self.slots.nodes) if self.options.is_elastic else self.options.number_of_nodes,
                "scale": self.scale.as_json() if self.options.is_elastic else None,
                "queues": None if self.options.queues is None else list(self.options.queues),
                "weights": {queue: weight for queue, weight in (self.options.queues or {}).items() if weight},
                "state_dir": str(self.options.state_dir),
                "preloaded": self.options.preload,
            },
            "roll": self._roll(),
            "events": self.events.latest(),
            "redis": _of_slot(self.slots.redis, beats=False) if self.slots.redis else None,
            "web": {"address": str(self.options.web), **_of_slot(self.slots.web)} if self.slots.web else None,
            "nodes": [_of_slot(slot) for slot in self.slots.nodes],
            # Processes beside those: successors that boot, predecessors that finish their jobs.
            "beside": [_of_slot(slot) for slot in self.slots.temporary if slot.child is not None],
        }

    def _roll(self) -> dict[str, Any] | None:
        """The last rolling restart."""
        if (roll := self.replacement.roll) is None:
            return None
        current = self.replacement.current
        return {
            "number": roll.number,
            "state": "running" if roll.is_running else "stopped" if roll.stopped else "over",
            "why": roll.why,
            "reason": roll.stopped or None,
            "done": [slot.title for slot in roll.done],
            "current": current.title if current is not None and roll.is_running else None,
            "left": [slot.title for slot in roll.left],
        }

    def _is_missing(self, slot: Slot) -> bool:
        is_away = not (slot.works or slot.leaving or slot.is_over or slot.joins)
        return is_away and slot is not self.replacement.current


def _why(slot: Slot, now: float) -> str | None:
    if slot.start_at is not None and slot.failures:
        wait = max(0.0, slot.start_at - now)
        return f"try {slot.history.failures + 1} in {wait:.0f} s: {slot.why}"
    if slot.is_surplus:
        return "goes: there are to be fewer"
    if slot.replaced_for:
        return f"makes room: {slot.replaced_for}"
    return slot.why or None


def _of_slot(slot: Slot, *, beats: bool = True) -> dict[str, Any]:
    now = time.monotonic()
    child = slot.child
    counts = slot.number is not None
    return {
        "slot": slot.index,
        "node_number": slot.number,
        "title": slot.title,
        "state": "given up" if slot.given_up else slot.state.value,
        "pid": child.pid if child else None,
        "node": (child.name or None) if child else None,
        "uptime": round(now - child.started_at, 3) if child else None,
        "beat_age": round(now - child.last_sign, 3) if child and beats else None,
        "busy": child.last_beat.busy if child and counts else None,
        "jobs": child.last_beat.jobs if child and counts else None,
        "waits": child.last_beat.waits if child and counts else None,
        "full": child.last_beat.full / 1000 if child and counts else None,
        "late": child.last_beat.late / 1000 if child and counts else None,
        "rss": rss(child) if child else None,
        "restarts": max(0, slot.starts - 1),
        "failures": slot.failures,
        "replacements": slot.replacements,
        "last_exit": slot.last_exit or None,
        "why": _why(slot, now),
        "next_retry": round(max(0.0, slot.start_at - now), 3) if slot.start_at is not None else None,
    }
