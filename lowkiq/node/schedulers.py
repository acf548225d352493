"""Schedulers of one thread, which ask Redis nothing. `lowkiq.hooks.Scheduler` says what each method does."""

from __future__ import annotations

import heapq
from itertools import count
from math import inf
from typing import Generic, TypeVar

T = TypeVar("T")

#: Seconds that two clocks differ from poll to poll: a shard that is noted again is not sorted in again for them.
SAME = 0.001
#: Stale entries that a heap may hold beside as many as it has live ones.
STALE = 100


class Lag(Generic[T]):
    """
    The shard whose oldest job has waited longest.

    A heap with stale entries left in it: a pick costs the same with five shards and with a thousand.
    """

    def __init__(self) -> None:
        self._due: dict[T, float] = {}
        self._heap: list[tuple[float, int, T]] = []
        self._order = count()

    def note(self, shard: T, due_at: float | None) -> None:
        if due_at is None:
            self._due.pop(shard, None)
        elif abs(self._due.get(shard, inf) - due_at) > SAME:
            self._due[shard] = due_at
            heapq.heappush(self._heap, (due_at, next(self._order), shard))
            if len(self._heap) > 2 * len(self._due) + STALE:
                # A job that is due far ahead is noted at every poll: entries would pile up behind it.
                self._heap = [(due_at, next(self._order), shard) for shard, due_at in self._due.items()]
                heapq.heapify(self._heap)

    def pick(self, now: float) -> T | None:
        due_at = self.next_due_at()
        if due_at is None or due_at > now:
            return None
        shard = heapq.heappop(self._heap)[2]
        del self._due[shard]
        return shard

    def next_due_at(self) -> float | None:
        while self._heap:
            due_at, _, shard = self._heap[0]
            if self._due.get(shard) == due_at:
                return due_at
            heapq.heappop(self._heap)
        return None


class Seq(Generic[T]):
    """One shard after the other, leaving out those with nothing due."""

    def __init__(self) -> None:
        self._due: dict[T, float | None] = {}
        self._ring: list[T] = []
        self._next = 0

    def note(self, shard: T, due_at: float | None) -> None:
        if shard not in self._due:
            self._ring.append(shard)
        self._due[shard] = due_at

    def pick(self, now: float) -> T | None:
        for step in range(len(self._ring)):
            position = (self._next + step) % len(self._ring)
            shard = self._ring[position]
            due_at = self._due[shard]
            if due_at is not None and due_at <= now:
                self._next = position + 1
                self._due[shard] = None
                return shard
        return None

    def next_due_at(self) -> float | None:
        return min((due_at for due_at in self._due.values() if due_at is not None), default=None)
