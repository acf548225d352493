"""Search: which jobs an operator means, and a walk over them that can be cut short and taken up again."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from lowkiq.admin.metrics import read_lengths
from lowkiq.admin.reader import error_text
from lowkiq.queue.call import Caller, pairs
from lowkiq.queue.shard import Shard
from lowkiq.transport.server import Command

View = Literal["due", "retries", "morgue"]

#: View, which is also the name of its index → where its jobs are, and the hash of their errors.
PLACES: Final = {"due": ("queue", "errors"), "retries": ("queue", "errors"), "morgue": ("morgue", "morgue:errors")}
#: Ids that Redis scans in one step: well under a millisecond.
STEP: Final = 500
#: Characters of an error by which jobs are grouped.
GROUP_CHARS: Final = 200


class Match(msgspec.Struct, frozen=True):
    """Jobs of a view, all of them or some."""

    #: "due" (all that are queued), "retries" (those that have failed) or "morgue".
    view: str
    #: A glob of ids, e.g. "order-*".
    pattern: str | None = None
    #: A group of errors, see `group_of`.
    error: str | None = None

    @property
    def is_all(self) -> bool:
        """True when every job of the view is meant."""
        return self.pattern is None and self.error is None


class Place(NamedTuple):
    """The position of a walk: a shard, and Redis's cursor in it."""

    shard: int
    cursor: int


class Step(NamedTuple):
    """The ids that a step of a walk found, all in one shard."""

    shard: Shard
    #: Matching ids with their scores in the index.
    found: list[tuple[bytes, float]]
    #: About how many ids were scanned.
    seen: int
    #: Where to go on; None at the end.
    next: Place | None


class Search(NamedTuple):
    """
    Walks over the matching jobs of one queue, a bounded step at a time.

    What is there from the beginning to the end of a walk is met; what comes or goes meanwhile may be.
    """

    caller: Caller
    shards: Sequence[Shard]
    load_error: Callable[[str], str]

    def lengths(self, view: str) -> list[int]:
        """The number of ids that each shard has in a view."""
        return read_lengths(self.caller, self.shards, view)

    def steps(self, match: Match, start: Place | None = None) -> Iterator[Step]:
        """The steps of a walk, each read as it is taken."""
        lengths = self.lengths(match.view)
        place: Place | None = start or Place(0, 0)
        while place is not None and (place := self._next_filled(place, lengths)) is not None:
            step = self._step(match, place, lengths)
            place = step.next
            yield step

    def newest(self, view: str, shards: Sequence[Shard], most: int) -> list[tuple[bytes, str | None]]:
        """The last ids of a view in each of these shards, with their errors, from two round trips."""
        ids = self.caller.read([("ZREVRANGE", f"{shard.prefix}{view}", 0, most - 1) for shard in shards], [])
        errors = self.errors_of(view, list(zip(shards, ids, strict=True)))
        return [row for some, texts in zip(ids, errors, strict=True) for row in zip(some, texts, strict=True)]

    def errors_of(self, view: str, found: Sequence[tuple[Shard, Sequence[bytes]]]) -> list[list[str | None]]:
        """The last error of each of these ids, shard by shard."""
        errors = PLACES[view][1]
        asked: list[Command] = [("HMGET", f"{shard.prefix}{errors}", *ids) for shard, ids in found if ids]
        texts = iter(self.caller.read(asked, ()))
        return [
            [error_text(text, self.load_error) if text else None for text in next(texts) or [None] * len(ids)]
            if ids
            else []
            for _, ids in found
        ]

    def _next_filled(self, place: Place, lengths: Sequence[int]) -> Place | None:
        if place.cursor and place.shard < len(lengths):
            return place
        filled = next((number for number in range(place.shard, len(lengths)) if lengths[number]), None)
        return None if filled is None else Place(filled, 0)

    def _step(self, match: Match, place: Place, lengths: Sequence[int]) -> Step:
        shard = self.shards[place.shard]
        options = ("MATCH", match.pattern) if match.pattern else ()
        key = f"{shard.prefix}{match.view}"
        ((cursor, page),) = self.caller.read([("ZSCAN", key, place.cursor, *options, "COUNT", STEP)], (0, []))
        found = [(id, float(score)) for id, score in pairs(page)]
        if match.error is not None:
            (errors,) = self.errors_of(match.view, [(shard, [id for id, _ in found])])
            found = [row for row, error in zip(found, errors, strict=True) if group_of(error) == match.error]
        following = Place(place.shard, int(cursor)) if int(cursor) else Place(place.shard + 1, 0)
        is_last = self._next_filled(following, lengths) is None
        return Step(shard, found, min(STEP, lengths[place.shard]), None if is_last else following)


def main_line(error: str | None) -> str:
    """The line of an error that says most: the first, of a traceback the last."""
    lines = [line.strip() for line in (error or "").splitlines() if line.strip()] or [""]
    return lines[-1] if lines[0].startswith("Traceback ") else lines[0]


def group_of(error: str | None) -> str:
    """The text that errors of one kind share: their main line, with numbers as "#"."""
    return re.sub(r"\d+", "#", main_line(error)[:GROUP_CHARS])


def is_glob(pattern: str) -> bool:
    """True when Redis would take it for more than the text itself."""
    return any(char in pattern for char in "*?[\\")
