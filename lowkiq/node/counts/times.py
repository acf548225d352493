"""Times: how long the jobs that this node has run waited and ran, counted in memory until the next beat."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from lowkiq import clock
from lowkiq.admin.past.statistics import DAY, SUMS_A_CALL, Addition, Times, add
from lowkiq.job import Job
from lowkiq.queue.call import Caller, chunked, redis_time

#: Of Redis's clock, each beat: rarely are all replies late.
READINGS: Final = 3


class Ran(NamedTuple):
    """Jobs that have run: a batch, or several that were quick."""

    #: The first due first.
    jobs: Sequence[Job]
    #: When that began (monotonic); of several batches the middle.
    began: float
    #: Of a batch.
    seconds: float


class RedisClock:
    """
    By how much Redis's clock is ahead of our monotonic one. Each reply puts it between two values: the quicker the
    reply, the nearer to each other. What counts is what all replies agree on, so that a late one misleads nobody.
    """

    #: None: nobody has asked yet.
    ahead: float | None = None

    def __init__(self) -> None:
        self._least, self._most = -math.inf, math.inf

    def ask(self, caller: Caller) -> None:
        """Reads Redis's clock a few times. It told it between question and reply."""
        for _ in range(READINGS):
            self._read(caller)

    def _read(self, caller: Caller) -> None:
        asked_at = clock.monotonic()
        told = redis_time(caller)
        least, most = told - clock.monotonic(), told - asked_at
        if least <= self._most and self._least <= most:  # else the clock was set, or has drifted
            least, most = max(least, self._least), min(most, self._most)
        self._least, self._most = least, most
        self.ahead = (least + most) / 2


class QueueTimes:
    """Those of one queue, for all threads, by day of Redis's clock. The lock is held for microseconds, once a claim."""

    def __init__(self, redis_clock: RedisClock) -> None:
        self._clock = redis_clock
        self._lock = threading.Lock()
        self._days: dict[float, Times] = {}

    def note(self, claimed_at: float, heard_at: float, ran: Iterable[Ran]) -> None:
        """
        Counts jobs of a claim that have run: they waited until they began.

        Args:
            claimed_at: Redis's time of it; 0: nobody knows, and nothing is counted.
            heard_at: when the node heard of it (monotonic).
        """
        if not claimed_at:
            return
        ahead, claimed_on = self._clock.ahead, claimed_at // DAY
        if ahead is None:
            ahead = claimed_at - heard_at
        with self._lock:
            claimed = self._days.get(claimed_on) or self._begin(claimed_on)
            for jobs, began, seconds in ran:
                claimed.waits.add_waits(jobs, began + ahead)
                ended_on = (began + ahead + seconds) // DAY
                ended = claimed if ended_on == claimed_on else self._days.get(ended_on) or self._begin(ended_on)
                ended.runs.add(seconds, len(jobs))

    def take(self) -> dict[int, Times]:
        """What was counted since the last time."""
        with self._lock:
            taken, self._days = self._days, {}
        return {int(day): times for day, times in taken.items()}

    def _begin(self, day: float) -> Times:
        times = self._days[day] = Times.none()
        return times


class NodeTimes:
    """Those of all queues. Only the heartbeat flushes them."""

    def __init__(self) -> None:
        self._queues: dict[str, QueueTimes] = {}
        self._clock = RedisClock()
        self._number = 0
        #: Additions that Redis has not confirmed, each with its number: they are repeated as they are.
        self._unsent: deque[tuple[int, list[Addition]]] = deque()

    def of(self, queue: str) -> QueueTimes:
        """Those of a queue."""
        return self._queues.setdefault(queue, QueueTimes(self._clock))

    def flush(self, caller: Caller, namespace: str, node: str) -> None:
        """Adds what was counted. Raises RedisError: the next flush goes on where this one has ended."""
        self._clock.ask(caller)
        self._send(caller, namespace, node)
        taken = [Addition(queue, *row) for queue, times in self._queues.items() for row in times.take().items()]
        for rows in chunked(taken, SUMS_A_CALL // 2):
            self._number += 1
            self._unsent.append((self._number, rows))
        self._send(caller, namespace, node)

    def _send(self, caller: Caller, namespace: str, node: str) -> None:
        while self._unsent:
            add(caller, namespace, node, *self._unsent[0])
            self._unsent.popleft()
