"""
Load: when one node more is of use, and when one fewer would do. Pure: what the nodes tell and the clock come from
outside.

| step | after | if meanwhile |
|---|---|---|
| one more | 10 s | all threads of all nodes were busy, and some job was always late |
| one fewer | a minute | no job was late, and the others could have done it all, and a third more, in its busiest 10 s |

Both begin anew after each step, and whenever a node isn't ready: so there is time to see what a step has changed. The
room that must be left keeps one node fewer from being one too few: with the load of a moment ago, no step follows the
opposite one.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

#: Seconds between two looks: a node beats once a second.
LOOK_INTERVAL: Final = 1.0
#: Seconds of work piling up before there is one node more, and of quiet before there is one fewer: starting one too
#: many costs little, and stopping one too early makes jobs late.
GROW_AFTER, SHRINK_AFTER = 10.0, 60.0
#: Seconds that a job may be due and count as punctual: nodes tell once a second what they know.
PUNCTUAL: Final = 1.0
#: The share of threads that count as all: a look may find one between two jobs.
ALL_BUSY: Final = 0.95
#: The share of the threads of one node fewer that may have been busy.
MOST_BUSY: Final = 0.75
#: So many looks in a row may be missed, before what was seen counts for nothing: the machine slept.
MISSED: Final = 5


class Told(NamedTuple):
    """A node's last beat, as far as it matters here."""

    #: The share of its threads that are busy; or of the places on its event loop, if more of those are taken.
    busy: float
    #: Seconds by which its oldest job is late.
    late: float


class Step(NamedTuple):
    """One node more, or fewer."""

    by: int
    why: str


class _Look(NamedTuple):
    at: float
    #: The share of all threads that were busy; and the mean of it in the GROW_AFTER before.
    busy: float
    mean: float
    late: float


class Load:
    """The last minute of all nodes here."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._looks: deque[_Look] = deque()

    def forget(self) -> None:
        """Begin anew: how many nodes there are has changed, or one of them is away."""
        self._looks.clear()

    @property
    def next_look_at(self) -> float:
        """When to look again (monotonic)."""
        return self._looks[-1].at + LOOK_INTERVAL if self._looks else self._clock()

    def look(self, nodes: Sequence[Told], least: int, most: int) -> Step | None:
        """A look at all nodes, which are as many as there are to be. Returns a step, within the bounds."""
        now = self._clock()
        if self._looks and now > self._looks[-1].at + MISSED * LOOK_INTERVAL:
            self.forget()
        while self._looks and self._looks[0].at < now - SHRINK_AFTER - LOOK_INTERVAL:
            self._looks.popleft()
        share = sum(node.busy for node in nodes) / max(len(nodes), 1)
        recent = [look.busy for look in self._looks if look.at >= now - GROW_AFTER]
        mean = (sum(recent) + share) / (len(recent) + 1)
        self._looks.append(_Look(now, share, mean, max((node.late for node in nodes), default=0.0)))
        if len(nodes) < most and (why := self._too_few(now)):
            return Step(1, why)
        if len(nodes) > least and (why := self._too_many(now, len(nodes))):
            return Step(-1, why)
        return None

    def _too_few(self, now: float) -> str:
        """The reason for one more, "" if there is none."""
        if not self._covers(now, GROW_AFTER) or self._looks[-1].mean < ALL_BUSY:
            return ""
        late = [look.late for look in self._looks if look.at >= now - GROW_AFTER]
        if min(late) <= PUNCTUAL:
            return ""
        return f"for {GROW_AFTER:g} s all threads were busy, and jobs late, by up to {max(late):.0f} s"

    def _too_many(self, now: float, nodes: int) -> str:
        """The reason for one fewer, "" if there is none."""
        if not self._covers(now, SHRINK_AFTER) or max(look.late for look in self._looks) > PUNCTUAL:
            return ""
        busiest = max(look.mean for look in self._looks)
        if busiest * nodes > MOST_BUSY * (nodes - 1):
            return ""
        return f"for {SHRINK_AFTER:g} s no job was late, and at most {busiest:.0%} of the threads were busy"

    def _covers(self, now: float, seconds: float) -> bool:
        return bool(self._looks) and now - self._looks[0].at >= seconds
