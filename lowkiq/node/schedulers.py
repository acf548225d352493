"""
Schedulers: pick a thread's next shard from what claims, settles, doorbells and polls have told of each shard's oldest
due job. They ask Redis nothing, and belong to one thread.
"""

from __future__ import annotations

import heapq
from itertools import count
from math import inf
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from lowkiq.node.shard_handler import ShardHandler


#: Seconds that two clocks differ from poll to poll: a shard that is noted again is not sorted in again for them.
SAME = 0.001
#: Stale entries that a heap may hold beside as many as it has live ones.
STALE = 100


class Scheduler(Protocol):
    """What a thread asks of its scheduler. Times are monotonic seconds."""

    def note(self, handler: ShardHandler, due_at: float | None) -> None:
        """The shard's oldest job is due then; None: nothing is queued, or the shard is not ours."""

    def pick(self, now: float) -> ShardHandler | None:
        """A shard with a due job, which is then forgotten until it is noted again."""

    def next_due_at(self) -> float | None:
        """When the next job of any shard is due."""


class Lag:
    """
    The shard whose oldest job has waited longest.

    A heap with stale entries left in it: a pick costs the same with five shards and with a thousand.
    """

    def __init__(self) -> None:
        self._due: dict[ShardHandler, float] = {}
        self._heap: list[tuple[float, int, ShardHandler]] = []
        self._order = count()

    def note(self, handler: ShardHandler, due_at: float | None) -> None:
        if due_at is None:
            self._due.pop(handler, None)
        elif abs(self._due.get(handler, inf) - due_at) > SAME:
            self._due[handler] = due_at
            heapq.heappush(self._heap, (due_at, next(self._order), handler))
            if len(self._heap) > 2 * len(self._due) + STALE:
                self._forget_stale()

    def _forget_stale(self) -> None:
        """A job that is due far ahead is noted at every poll: entries would pile up behind it."""
        self._heap = [(due_at, next(self._order), handler) for handler, due_at in self._due.items()]
        heapq.heapify(self._heap)

    def pick(self, now: float) -> ShardHandler | None:
        due_at = self.next_due_at()
        if due_at is None or due_at > now:
            return None
        handler = heapq.heappop(self._heap)[2]
        del self._due[handler]
        return handler

    def next_due_at(self) -> float | None:
        while self._heap:
            due_at, _, handler = self._heap[0]
            if self._due.get(handler) == due_at:
                return due_at
            heapq.heappop(self._heap)
        return None


class Seq:
    """One shard after the other, leaving out those with nothing due."""

    def __init__(self) -> None:
        self._due: dict[ShardHandler, float | None] = {}
        self._ring: list[ShardHandler] = []
        self._next = 0

    def note(self, handler: ShardHandler, due_at: float | None) -> None:
        if handler not in self._due:
            self._ring.append(handler)
        self._due[handler] = due_at

    def pick(self, now: float) -> ShardHandler | None:
        for step in range(len(self._ring)):
            position = (self._next + step) % len(self._ring)
            handler = self._ring[position]
            due_at = self._due[handler]
            if due_at is not None and due_at <= now:
                self._next = position + 1
                self._due[handler] = None
                return handler
        return None

    def next_due_at(self) -> float | None:
        return min((due_at for due_at in self._due.values() if due_at is not None), default=None)
