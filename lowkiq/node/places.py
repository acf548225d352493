"""Places: what this node has of a queue with `max_running`. Each lets one batch run, from claim to claim."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Any, Final, Protocol

from redis.exceptions import RedisError

from lowkiq import clock
from lowkiq.log import get_logger
from lowkiq.queue.call import Caller, chunked
from lowkiq.queue.places import MOST_AT_ONCE, QueuePlaces

logger = get_logger()

#: Seconds after which a node that found no place asks again: it is rung when its turn comes, but a ring may be lost.
ASK_AGAIN: Final = 0.5
#: Seconds for which who has a place may go on from claim to claim though others wait: to hand it over takes some
#: milliseconds, in which nobody uses it.
TURN: Final = 0.2


class Line(Protocol):
    """A pool, as far as shards wait in it for a place."""

    def look(self, lease: Any, look_at: float) -> None:
        """Has a thread look at the shard then (monotonic), or earlier."""

    def keep(self, lease: Any, since: float) -> None:
        """Has the calling thread look at the shard, which has waited since then, and wakes no other for it."""


class Place:
    """A place, by its name in Redis. Who has it may use it for one claim after the other."""

    def __init__(self, name: str, owner: Places) -> None:
        self.name = name
        self.owner = owner
        #: When it was asked for (monotonic).
        self.since = clock.monotonic()
        #: It was not kept in time, and another node has it by now.
        self.is_lost = False


class Places:
    """
    The places of one queue, for all threads. They ask for one before they claim; who gets none parks the shard, and
    goes on with others: nobody waits here, and no lock is held while a call is on its way.

    Args:
        met: called with errors of Redis. They are not raised: no place is taken, and one given back goes later.
    """

    def __init__(self, calls: QueuePlaces, caller: Caller, met: Callable[[RedisError], None]) -> None:
        self.prefix = calls.prefix
        #: Batches that may run at a time on all nodes; None: any number.
        self.most: int | None = None
        self._last = 1
        self._calls, self._caller, self._met = calls, caller, met
        self._lock = threading.Lock()
        self._numbers = count(1)
        self._held: dict[str, Place] = {}
        #: Names that Redis may know, and nobody uses.
        self._unused: dict[str, None] = {}
        #: Nodes known to be dead, of which Redis was told.
        self._dead: set[str] = set()
        #: Shards that wait, each with its pool and since when; and when the node is to ask again (monotonic).
        self._parked: dict[Any, tuple[Line, float]] = {}
        self._asks_at = 0.0
        self._rings = 0

    def limit(self, most: int | None) -> Places | None:
        """Has at most so many batches run from here on; those that run go on. Returns itself if there is a limit."""
        if most != self.most:
            self.most, self._last = most, most or self._last
            self.ring(0.0)
            with self._lock:
                parked = list(self._parked.items())
            for lease, (line, _) in parked:
                line.look(lease, clock.monotonic())
        return None if most is None else self

    # ── for threads ─────────────────────────────────────────────────────────────────────────────────────────────────

    def take(self, spare: Sequence[Place], wanted: int) -> list[Place]:
        """
        Gives places for so many batches, or for as many as may run now. `spare` are those that the caller has and does
        not use: it gets them again, or else they are given back.
        """
        now, most = clock.monotonic(), self.most
        kept = [place for place in spare if not place.is_lost and now - place.since < TURN][:wanted]
        others = [place for place in spare if place not in kept]
        missing = wanted - len(kept)
        if most is None or not (others or (missing and now >= self._asks_at)):
            return kept
        return kept + self._exchange(most, others, missing)

    def give(self, places: Sequence[Place]) -> None:
        """Gives places back."""
        if places:
            self._exchange(self._last, places, 0)

    def park(self, lease: Any, line: Line) -> None:
        """Has a shard wait until its pool is to look at it again."""
        with self._lock:
            self._parked.setdefault(lease, (line, clock.monotonic()))
            asks_at = self._asks_at
        line.look(lease, max(asks_at, clock.monotonic()))

    def unpark(self, lease: Any) -> None:
        """Notes that a shard does not wait: it was claimed from, or can't be."""
        if self._parked:
            with self._lock:
                self._parked.pop(lease, None)

    def turn(self, line: Line, places: int = 1) -> None:
        """Has the calling thread, which has so many places, look at as many of the shards that have waited longest."""
        with self._lock:
            parked = [(lease, since) for lease, (its, since) in self._parked.items() if its is line][:places]
        for lease, since in parked:
            line.keep(lease, since)

    # ── for the doorbell and the lease keeper ───────────────────────────────────────────────────────────────────────

    def ring(self, due_in: float) -> None:
        """Has a thread ask, as it is this node's turn in so many seconds."""
        at = clock.monotonic() + due_in
        with self._lock:
            self._rings += 1
            self._asks_at = min(self._asks_at, at)
        self._wake_first(at)

    def keep(self, dead: Iterable[str]) -> list[Place]:
        """Keeps its places for a lease's time, and frees those of dead nodes. Returns those that it has lost."""
        most, lost = self.most, list[Place]()
        if most is None:
            return lost
        with self._lock:
            held = list(self._held)
        try:
            for names in chunked(held, MOST_AT_ONCE):
                gone = self._caller.run(self._calls.keep(most, names))
                with self._lock:
                    lost += [self._held.pop(name) for name in gone if name in self._held]
                    # Given back meanwhile, and perhaps taken again by this.
                    self._unused.update((name, None) for name in names if name not in self._held)
        except RedisError as error:
            self._met(error)
        for place in lost:
            place.is_lost = True
        if lost:
            logger.warning("places_lost", queue=self._calls.queue, places=len(lost), advice="the node was paused")
        news = [name for name in dict.fromkeys(dead) if name not in self._dead]
        if news or self._unused:
            self._exchange(most, (), 0, news)
        return lost

    def _wake_first(self, at: float) -> None:
        with self._lock:
            lease, (line, _) = next(iter(self._parked.items()), (None, (None, 0.0)))
        if line:
            line.look(lease, at)

    # ── exchanges with Redis ────────────────────────────────────────────────────────────────────────────────────────

    def _exchange(self, most: int, given: Sequence[Place], wanted: int, dead: Sequence[str] = ()) -> list[Place]:
        places = [Place(self._calls.name(next(self._numbers)), self) for _ in range(min(wanted, most, MOST_AT_ONCE))]
        with self._lock:
            for place in given:
                self._held.pop(place.name, None)
                self._unused[place.name] = None
            unused, rings = list(self._unused)[:MOST_AT_ONCE], self._rings
        try:
            taken = self._caller.run(self._calls.take(most, [place.name for place in places], unused, dead))
        except RedisError as error:
            self._met(error)
            with self._lock:  # Redis may know of them
                self._unused.update((place.name, None) for place in places)
            return self._note(places, set(), rings)
        with self._lock:
            self._dead.update(dead)
            for name in unused:
                self._unused.pop(name, None)
        return self._note(places, set(taken), rings)

    def _note(self, places: Sequence[Place], names: set[str], rings: int) -> list[Place]:
        """Notes which of the places it has; with fewer than it asked for it asks again when it is rung, or later."""
        got = [place for place in places if place.name in names]
        with self._lock:
            self._held.update((place.name, place) for place in got)
            if len(got) < len(places) and self._rings == rings:
                self._asks_at = clock.monotonic() + ASK_AGAIN
            elif places:
                self._asks_at = 0.0
        if got and len(got) == len(places):
            self._wake_first(clock.monotonic())  # there may be more
        return got
