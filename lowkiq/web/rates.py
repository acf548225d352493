"""Rates: events of each queue a second, by its counters in the snapshots of the last seconds."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from lowkiq.admin.metrics import QueueMetrics
from lowkiq.admin.past.history import SAMPLE_INTERVAL, Point, read_earlier
from lowkiq.web.backend import Backend

#: Seconds over which rates are taken: long enough to be calm, short enough to show a change.
RATE_WINDOW: Final = 10.0

#: Queue → its counters: processed, failed, pushed, merged.
Counters = Mapping[str, tuple[int, int, int, int]]


class Rates(msgspec.Struct, frozen=True):
    """Events per second over the last seconds."""

    processed: float = 0.0
    failed: float = 0.0
    pushed: float = 0.0
    merged: float = 0.0


class Meter:
    """Tells the rates of queues by their counters, and those of a while ago."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        #: Times with the counters as of then.
        self._past: deque[tuple[float, Counters]] = deque()

    def __call__(self, now: float, queues: Mapping[str, QueueMetrics], at: float) -> dict[str, Rates]:
        """
        Notes the counters of now, and tells the rates.

        Args:
            now: monotonic.
            at: the same by Redis's clock.
        """
        counters = {name: _counters(row) for name, row in queues.items()}
        if not self._past:
            self._past.extend(self._from_history(now, queues, at))
        # The newest that is older stays, so that there is always one to compare with.
        while len(self._past) > 1 and now - self._past[1][0] >= RATE_WINDOW:
            self._past.popleft()
        then, before = self._past[0] if self._past else (now, counters)
        self._past.append((now, counters))
        return {name: _rates(before.get(name, after), after, now - then) for name, after in counters.items()}

    def _from_history(self, now: float, queues: Iterable[str], at: float) -> Iterator[tuple[float, Counters]]:
        """Counters that the nodes have recorded, so that the first snapshot already has rates."""
        points = read_earlier(self._backend.caller, self._backend.namespace, queues)
        # A sample was taken somewhere in its step.
        oldest = min((point.at for point in points.values()), default=at) + SAMPLE_INTERVAL / 2
        if 0 < at - oldest < 2 * RATE_WINDOW:
            yield now - (at - oldest), {name: _counters(point) for name, point in points.items()}


def sum_of(rates: Iterable[Rates]) -> Rates:
    """The rates of several queues together."""
    rows = list(rates)
    return Rates(*(sum(getattr(row, name) for row in rows) for name in Rates.__struct_fields__))


def _counters(row: QueueMetrics | Point) -> tuple[int, int, int, int]:
    return row.processed, row.failed, row.pushed, row.merged


def _rates(before: tuple[int, ...], after: tuple[int, ...], seconds: float) -> Rates:
    if seconds <= 0:
        return Rates()
    # A counter falls when somebody has emptied Redis.
    return Rates(*(max(new - old, 0) / seconds for old, new in zip(before, after, strict=True)))
