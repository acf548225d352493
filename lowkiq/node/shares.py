"""
Shares: the scheduler of threads whose queues have weights. It shares out their time, not their picks: a queue of slow
jobs gets no more of the threads than its weight says. `lowkiq.hooks.Scheduler` says what its first methods do.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from itertools import count
from operator import attrgetter
from typing import Any, Final, Generic

from lowkiq.node.schedulers import STALE, Lag, Q

#: Seconds that a claim of a queue counts as, before any of it has ended.
UNKNOWN: Final = 0.001
#: Weight of the newest claim in the mean of what claims of its queue take.
NEWEST: Final = 0.2

_queue_of = attrgetter("shard.queue")


class Shares(Generic[Q]):
    """
    Among the queues with due shards the one that has used least of the threads, for its weight; of its shards the one
    that has waited longest. A queue that is alone gets everything.

    What a queue has used is told in seconds divided by its weight. A claim counts as the mean of its queue from when it
    is begun, as twice that once it has lasted for longer, and so on: threads do not all run into the slow jobs of a
    queue before the first of them has ended. Then it counts as what it took.

    A queue that comes back, when nothing of it was due, begins with what the others have used: it saves nothing up.
    """

    def __init__(self, weights: Mapping[str, int]) -> None:
        self._weights = weights
        self._queues: dict[str, _Queue[Q]] = {}
        #: Thread → claims that it has begun.
        self._turns: dict[Any, list[_Turn[Q]]] = {}
        #: When they will have lasted for longer than they count, and claims that have ended before that.
        self._overdue: list[tuple[float, int, _Turn[Q]]] = []
        self._order = count()

    def weigh(self, weights: Mapping[str, int]) -> None:
        """Goes by other weights from here on. A queue without has a weight of 1."""
        self._weights = weights
        for name, queue in self._queues.items():
            queue.weight = weights.get(name, 1)

    def note(self, shard: Q, due_at: float | None) -> None:
        self._queue(shard).shards.note(shard, due_at)

    def pick(self, now: float) -> Q | None:
        self._count_overdue(now)
        due: list[_Queue[Q]] = []
        back: list[_Queue[Q]] = []
        for queue in self._queues.values():
            due_at = queue.shards.next_due_at()
            if due_at is None or due_at > now:
                queue.is_due = False
            else:
                (due if queue.is_due else back).append(queue)
        if back:
            self._take_up(back)
            due += back
        if not due:
            return None
        return min(due, key=_rank).shards.pick(now)

    def next_due_at(self) -> float | None:
        times = (queue.shards.next_due_at() for queue in self._queues.values())
        return min((due_at for due_at in times if due_at is not None), default=None)

    def begin(self, thread: Any, shard: Q, now: float) -> None:
        """Notes that a thread takes jobs of a shard."""
        queue = self._queue(shard)
        turn = _Turn(queue, queue.mean)
        self._turns.setdefault(thread, []).append(turn)
        heapq.heappush(self._overdue, (now + turn.seconds, next(self._order), turn))
        if len(self._overdue) > STALE * (1 + len(self._turns)):
            # Many that have ended sooner than their queue's mean, and those that brought nothing, would pile up.
            self._overdue = [row for row in self._overdue if not row[-1].is_over]
            heapq.heapify(self._overdue)

    def end(self, thread: Any, took: Iterable[tuple[Q, float]]) -> None:
        """Notes that a thread has ended all that it has begun, and the seconds that its claims took."""
        for turn in self._turns.pop(thread, ()):
            turn.end()
        for shard, seconds in took:
            if seconds:
                self._queue(shard).learn(seconds)

    def _take_up(self, back: Iterable[_Queue[Q]]) -> None:
        """Has queues that are due again begin with what the others have used."""
        queues = self._queues.values()
        others = [queue.used for queue in queues if queue.is_due]
        # With nothing else due there was nothing to be shared out: then nobody owes anything.
        used = min(others) if others else max(queue.used for queue in queues)
        for queue in back:
            queue.used = max(queue.used, used)
            queue.is_due = True

    def _count_overdue(self, now: float) -> None:
        while self._overdue and (self._overdue[0][0] <= now or self._overdue[0][2].is_over):
            at, _, turn = heapq.heappop(self._overdue)
            if not turn.is_over:
                more = turn.seconds
                turn.count(more)
                heapq.heappush(self._overdue, (at + more, next(self._order), turn))

    def _queue(self, shard: Q) -> _Queue[Q]:
        name = _queue_of(shard)
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = _Queue(self._weights.get(name, 1))
        return queue


class _Queue(Generic[Q]):
    """A queue, and what it has used of the threads."""

    def __init__(self, weight: int) -> None:
        self.weight = weight
        self.shards: Lag[Q] = Lag()
        #: Seconds divided by the weight.
        self.used = 0.0
        #: At the last pick.
        self.is_due = False
        #: Seconds of a claim.
        self.mean = UNKNOWN
        self._is_known = False

    def learn(self, seconds: float) -> None:
        """Notes what a claim took."""
        self.used += seconds / self.weight
        self.mean += (NEWEST if self._is_known else 1.0) * (seconds - self.mean)
        self._is_known = True


class _Turn(Generic[Q]):
    """A claim that runs, or is on its way, and what it counts as until it has ended."""

    def __init__(self, queue: _Queue[Q], seconds: float) -> None:
        self.queue = queue
        self.seconds = self._used = 0.0
        self.is_over = False
        self.count(seconds)

    def count(self, seconds: float) -> None:
        """Has it count as so many seconds more."""
        used = seconds / self.queue.weight
        self.seconds += seconds
        self._used += used
        self.queue.used += used

    def end(self) -> None:
        """Has it count as nothing any more."""
        self.is_over = True
        self.queue.used -= self._used


def _rank(queue: _Queue[Any]) -> tuple[float, int]:
    return queue.used, -queue.weight
