"""Schedulers of threads, which ask Redis nothing. `lowkiq.hooks.Scheduler` says what each method does."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Collection, Sequence
from itertools import count
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, Self, TypeVar

from lowkiq.errors import SettingsError, short, unknown_option
from lowkiq.hooks import Scheduler

T = TypeVar("T")


class Named(Protocol):
    """A shard, as far as it is named."""

    @property
    def queue(self) -> str: ...


class OfQueue(Protocol):
    """What a node has of a shard: it tells which it is."""

    @property
    def shard(self) -> Named: ...


if TYPE_CHECKING:  # as in types/variables.py: Ordered(["critical"]) is one for any shards
    from typing_extensions import TypeVar as Variable

    Q = Variable("Q", bound=OfQueue, default=Any)
else:
    Q = TypeVar("Q", bound=OfQueue)

#: Seconds that two clocks differ from poll to poll: a shard that is noted again is not sorted in again for them.
SAME = 0.001
#: Seconds after which a shard goes before those of higher queues.
DEFAULT_AGE: Final = 60.0
#: Stale entries that a heap may hold beside as many as it has live ones.
STALE = 100

_queue_of = attrgetter("shard.queue")


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

    def require(self, picked: Any) -> T | None:
        """What somebody has picked. Raises ValueError if that was not noted."""
        if picked is not None and picked not in self._due:
            raise ValueError(f"pick gave {short(picked)}, which was not noted as due")
        found: T | None = picked
        return found

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


class Ordered(Generic[Q]):
    """
    Queues in a strict order: a shard of the first that has any due, and of its shards the one that has waited longest.
    Queues that are not named come last, together.

    A shard that has waited for longer than `age` goes before higher ones all the same, but no two such in a row: else a
    backlog of a low queue, once it is old, would hold up all others.

    Args:
        queues: names, the first one highest.
        age: seconds.
    """

    def __init__(self, queues: Sequence[str], age: float = DEFAULT_AGE) -> None:
        if isinstance(queues, str) or not queues or not all(isinstance(name, str) for name in queues):
            raise SettingsError(f'Ordered({short(queues)}): name queues, the highest first, such as ["critical"]')
        if twice := [name for at, name in enumerate(queues) if name in queues[:at]]:
            raise SettingsError(f"Ordered: {short(twice[0])} is named twice: each queue has one place")
        if isinstance(age, bool) or not isinstance(age, int | float) or not 0 < age < inf:
            raise SettingsError(f"Ordered: age is {short(age)}, it must be a number of seconds above 0")
        self.queues, self.age = tuple(queues), age
        self._places = {name: place for place, name in enumerate(queues)}
        self._levels: list[Lag[Q]] = [Lag() for _ in range(len(queues) + 1)]
        self._is_after_old = False

    def __call__(self) -> Self:
        """Another one, for another pool of threads: build_scheduler may be an Ordered itself."""
        return type(self)(self.queues, self.age)

    def check(self, queues: Collection[str]) -> None:
        """Raises SettingsError if it names another queue than these; it names the one that was meant perhaps."""
        for name in self.queues:
            if name not in queues:
                raise unknown_option("queue", name, queues)

    def note(self, shard: Q, due_at: float | None) -> None:
        self._levels[self._places.get(_queue_of(shard), -1)].note(shard, due_at)

    def pick(self, now: float) -> Q | None:
        highest = oldest = None
        oldest_at = now - self.age
        for level in self._levels:
            due_at = level.next_due_at()
            if due_at is None or due_at > now:
                continue
            if highest is None:
                highest = level
            if due_at < oldest_at:
                oldest, oldest_at = level, due_at
        is_old = oldest not in {None, highest} and not self._is_after_old
        self._is_after_old = is_old
        picked = oldest if is_old else highest
        return picked.pick(now) if picked else None

    def next_due_at(self) -> float | None:
        times = (level.next_due_at() for level in self._levels)
        return min((due_at for due_at in times if due_at is not None), default=None)


#: Schedulers of Lowkiq's own.
OWN: Final[tuple[type[Any], ...]] = (Lag, Seq, Ordered)


class Watched(Generic[Q]):
    """
    A scheduler of the user's, for as long as it works: once it raises, or answers what can't be, shards are taken by
    lag from there on, and `failed` hears of it once.
    """

    def __init__(self, own: Scheduler[Q], failed: Callable[[BaseException], None]) -> None:
        self._own: Scheduler[Q] | None = own
        self._lag: Lag[Q] = Lag()
        self._failed = failed

    def note(self, shard: Q, due_at: float | None) -> None:
        self._lag.note(shard, due_at)
        self._ask(lambda own: own.note(shard, due_at))

    def pick(self, now: float) -> Q | None:
        picked = self._ask(lambda own: self._lag.require(own.pick(now)))
        if self._own is None:
            return self._lag.pick(now)
        if picked is not None:
            self._lag.note(picked, None)
        return picked

    def next_due_at(self) -> float | None:
        found = self._ask(lambda own: _time(own.next_due_at()))
        return self._lag.next_due_at() if self._own is None else found

    def _ask(self, ask: Callable[[Scheduler[Q]], T]) -> T | None:
        if self._own is not None:
            try:
                return ask(self._own)
            except BaseException as error:  # noqa: BLE001 (it is the user's)
                self._own = None
                self._failed(error)
        return None


def _time(at: Any) -> float | None:
    if at is None or (isinstance(at, int | float) and not math.isnan(at)):
        return at
    raise TypeError(f"next_due_at gave {short(at)}, it must be seconds or None")
