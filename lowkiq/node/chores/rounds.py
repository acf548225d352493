"""Rounds: what the owner of a shard goes through from end to end, a page at a time, so Redis is never kept busy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Final
from weakref import WeakKeyDictionary

from lowkiq.errors import BeingResharded, LowkiqError
from lowkiq.node.noted import Owned

#: Seconds between two pages, at least: of a core of Redis, which takes a millisecond for each, it is a few percent.
PAUSE: Final = 0.02
#: Shards of which a page is looked at in one go: whoever does it has other things to do.
TOGETHER: Final = 10
#: Where a round begins, and what tells that it is over.
BEGIN: Final = b"0"


class Rounds:
    """
    Rounds of one kind, one at a time in each shard.

    Args:
        page: does a page of a shard under an epoch from some place on, and gives the place where to go on.
        every: seconds from the beginning of one to that of the next, at least.
    """

    def __init__(self, page: Callable[[Owned, str, bytes], bytes], every: float) -> None:
        self._page, self._every = page, every
        #: Where those go on that have begun. The first has waited for longest.
        self._places: dict[Owned, bytes] = {}
        self._began_at: WeakKeyDictionary[Owned, float] = WeakKeyDictionary()

    def begin(self, leases: Iterable[Owned], now: float) -> None:
        """Begins where none is going on, unless the last one began a short while ago."""
        for lease in leases:
            if lease not in self._places and now - self._began_at.get(lease, -math.inf) >= self._every:
                self._began_at[lease] = now
                self._places[lease] = BEGIN

    def go_on(self) -> set[Owned]:
        """Does a page of each of some; returns these. Raises RedisError; then that page is to be done again."""
        done = set()
        for lease in list(self._places)[:TOGETHER]:
            place, epoch, is_waiting = self._places[lease], lease.epoch, False
            try:
                place = BEGIN if epoch is None else self._page(lease, epoch, place)
            except BeingResharded:  # it goes on once all has come
                is_waiting = True
            except LowkiqError:  # another node's by now, or moved
                place = BEGIN
            del self._places[lease]
            if place != BEGIN or is_waiting:
                self._places[lease] = place
            done.add(lease)
        return done

    @property
    def has_more(self) -> bool:
        """True while some are going on."""
        return bool(self._places)
