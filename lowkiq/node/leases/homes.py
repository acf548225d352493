"""Homes: where a claim in hand is in Redis: in the shard of which it was made, or where a reshard has moved its ids."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from lowkiq.job import KEPT_BYTES, shard_of
from lowkiq.queue.keys import Layout
from lowkiq.queue.shard import Shard


class Home(NamedTuple):
    """A shard that has some of a claim, and the claim's number there."""

    shard: Shard
    number: int | str
    #: The ids that it has; None: all.
    ids: frozenset[str] | None = None


class Homes:
    """Those of one claim. Its ids are in the shards of one queue, be it resharded again and again."""

    def __init__(self, shard: Shard, number: int) -> None:
        self._first = Home(shard, number)
        self.all: tuple[Home, ...] = (self._first,)

    @property
    def asked(self) -> tuple[Home, ...]:
        """Those that renewals ask: also the first one, since a failover may have lost that it was moved from there."""
        return self.all if self._first in self.all else (self._first, *self.all)

    def of(self, id: str) -> Home | None:
        """The one that has an id; None where it is lost."""
        return next((home for home in self.all if home.ids is None or id in home.ids), None)

    def follow(self, home: Home, layout: str, ids: Iterable[str]) -> None:
        """Notes that what was there of these ids has moved to shards of that layout (away.lua)."""
        to, moved = Layout.parse(layout.encode()), dict[int, list[str]]()
        for id in ids:
            if home.ids is None or id in home.ids:
                moved.setdefault(shard_of(id.encode("utf-8", KEPT_BYTES), to.shards_count), []).append(id)
        old, number = home.shard, f"{home.number}@{home.shard.index}"
        new = [Home(Shard(old.namespace, old.queue, at, to), number, frozenset(some)) for at, some in moved.items()]
        self.all = (*(other for other in self.all if other is not home), *new)

    def go_back(self) -> None:
        """Notes that all of it is where it was first."""
        self.all = (self._first,)

    def lose(self, home: Home) -> None:
        """Notes that nothing of it is there any more."""
        self.all = tuple(other for other in self.all if other is not home)
