"""Times: how long the jobs that this node has run waited and ran, counted in memory until the next beat."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Sequence

from lowkiq.admin.past.statistics import DAY, SUMS_A_CALL, Addition, Times, add
from lowkiq.job import Job
from lowkiq.queue.call import Caller, chunked


class QueueTimes:
    """Those of one queue, for all threads, by day of Redis's clock. The lock is held for microseconds, once a claim."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._days: dict[float, Times] = {}

    def note(self, jobs: Sequence[Job], claimed_at: float, ended_at: float, runs: Iterable[tuple[float, int]]) -> None:
        """
        Counts jobs that have run, the first due first.

        Args:
            claimed_at, ended_at: Redis's time.
            runs: how many of them ran for so many seconds.
        """
        claimed_on, ended_on = claimed_at // DAY, ended_at // DAY
        with self._lock:
            times = self._days.get(claimed_on) or self._begin(claimed_on)
            times.waits.add_waits(jobs, claimed_at)
            if ended_on != claimed_on:
                times = self._days.get(ended_on) or self._begin(ended_on)
            for seconds, count in runs:
                times.runs.add(seconds, count)

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
        self._number = 0
        #: Additions that Redis has not confirmed, each with its number: they are repeated as they are.
        self._unsent: deque[tuple[int, list[Addition]]] = deque()

    def of(self, queue: str) -> QueueTimes:
        """Those of a queue."""
        return self._queues.setdefault(queue, QueueTimes())

    def flush(self, caller: Caller, namespace: str, node: str) -> None:
        """Adds what was counted. Raises RedisError: the next flush goes on where this one has ended."""
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
