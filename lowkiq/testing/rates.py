"""FakeGate: tells which jobs may start now, as the rate of their worker says, by the fake's clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from lowkiq.errors import LowkiqError
from lowkiq.handlers.retries import Limited
from lowkiq.job import Job
from lowkiq.rate import Rate
from lowkiq.testing.model.shard_state import SECOND
from lowkiq.types.codec import Codec


@dataclass
class _Line:
    """Starts of one key, and jobs that wait for theirs. Microseconds."""

    starts: deque[int] = field(default_factory=deque)
    #: Jobs that were told when to come, and the last of these times.
    places: dict[str, int] = field(default_factory=dict)
    last: int = 0
    rests: int = 0

    def free_at(self, rate: Rate) -> int:
        """Time at which the next one may start, as to those that have."""
        if len(self.starts) < rate.limit:
            return self.rests
        return max(self.rests, self.starts[-rate.limit] + round(rate.window * SECOND))

    def wait(self, id: str, rate: Rate, now: int) -> int:
        """Microseconds that a job has to wait; 0: it starts."""
        free, place = self.free_at(rate), self.places.get(id)
        is_next = place is not None or self.last <= now
        if is_next and max(free, place or 0) <= now:
            self.places.pop(id, None)
            self.starts.append(now)
            if len(self.starts) > rate.limit:
                self.starts.popleft()
            return 0
        at = max(free, self.last + round(rate.place * SECOND)) if place is None else max(free, place)
        self.places[id] = at
        self.last = max(self.last, at)
        return max(at - now, 1)


class FakeGate:
    """Gate of one queue."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._lines: dict[str, _Line] = {}

    def waits(self, rate: Rate, jobs: Sequence[Job], now: int) -> tuple[dict[str, float], dict[str, BaseException]]:
        """Id → seconds until a job is to come again, and errors of those whose key can't be told; others may start."""
        waits: dict[str, float] = {}
        failed: dict[str, BaseException] = {}
        for job in jobs:
            try:
                key = self._key(rate, job)
            except LowkiqError as error:
                failed[job.id] = error
                continue
            if wait := self._lines.setdefault(key, _Line()).wait(job.id, rate, now):
                waits[job.id] = wait / SECOND
        return waits, failed

    def rest(self, rate: Rate, jobs: Sequence[Job], limited: Sequence[Limited], now: int) -> None:
        """Has keys rest whose far side has had enough."""
        by_id = {job.id: job for job in jobs}
        for row in limited:
            key = row.key if rate.by and row.key is not None else self._key(rate, by_id[row.id])
            line = self._lines.setdefault(key, _Line())
            line.rests = max(line.rests, now + round(row.seconds * SECOND))

    def _key(self, rate: Rate, job: Job) -> str:
        """The key of a job, as a node tells it (gate.py). Raises LowkiqError."""
        return rate.key_of(job.id, job.payloads[0], self._codec.load_id)
