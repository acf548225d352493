"""
Notices: what is wrong with the nodes here, in short sentences for the dashboards of people elsewhere.

Each begins with its kind and a colon, which makes an alert of that kind (lowkiq/admin/alerts/nodes.py); a peer
that knows no kinds shows it as part of the sentence.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from lowkiq_supervisor.policy.replacement import Replacement
from lowkiq_supervisor.processes.slots import Slot, Slots
from lowkiq_supervisor.restart_policy import Kind

#: Failures of a slot from which on people are told: one is what the supervisor is for.
FAILURES = 3
#: Seconds for which something that has happened once is told.
TOLD_FOR = 600.0


@dataclass(slots=True)
class Notices:
    """Sentences without their full stop, each about what is so now or has just happened."""

    slots: Slots
    replacement: Replacement
    _happened: deque[tuple[float, str]] = field(default_factory=lambda: deque(maxlen=10))

    def happened(self, sentence: str) -> None:
        """Tell of this for a while."""
        self._happened.append((time.monotonic() + TOLD_FOR, sentence))

    def now(self) -> tuple[str, ...]:
        """All of them, the lasting ones first."""
        return (*self._lasting(), *(text for until, text in self._happened if until > time.monotonic()))

    def _lasting(self) -> Iterator[str]:
        yield from (text for slot in self.slots.nodes if (text := _of_slot(slot)))
        if (roll := self.replacement.roll) is not None and roll.stopped:
            left = ", ".join(slot.title for slot in roll.left)
            yield f"roll stopped: a rolling restart has stopped: {roll.stopped}; {left} left as before"
        for slot in self.slots.temporary:
            if slot.child is not None and slot.child.pid in self.replacement.told_of:
                runs = ", ".join(slot.runs()) or "a job"
                yield f"recycling: {slot.title} retires for long: process {slot.child.pid} runs {runs}"


def _of_slot(slot: Slot) -> str:
    if slot.given_up:
        return f"crash loop: {slot.title} was given up: {slot.why}; see its log"
    if slot.history.failures < FAILURES or slot.failing_since is None or slot.has_healed:
        return ""
    does = "can't start" if slot.last_kind in {Kind.BOOT, Kind.REFUSED} else "keeps dying"
    since = time.strftime("%H:%M UTC", time.gmtime(slot.failing_since))
    return (
        f"crash loop: {slot.title} {does} since {since}, {slot.history.failures} times by now: {slot.why}; see its log"
    )
