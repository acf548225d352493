"""Search: which jobs an operator means, and a walk over them that can be cut short and taken up again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from lowkiq.admin.jobs.reader import error_text
from lowkiq.admin.jobs.states import STATES
from lowkiq.admin.metrics import read_counts, read_lengths
from lowkiq.failure import group_of
from lowkiq.queue.call import Caller, chunked, pairs, redis_time
from lowkiq.queue.keys import NEVER
from lowkiq.queue.shard import Shard
from lowkiq.transport.server import Command

View = Literal["due", "waiting", "scheduled", "retries", "blocked", "held", "morgue"]

#: Ids that Redis scans in one step: well under a millisecond.
STEP: Final = 500
#: Commands in a round trip.
AT_ONCE: Final = 1_000


class Match(msgspec.Struct, frozen=True):
    """Jobs of a view, all of them or some."""

    #: A state that has an index: "due" (all that are queued), "waiting", "scheduled", "retries", "blocked", "held" or
    #: "morgue".
    view: str
    #: A glob of ids, e.g. "order-*".
    pattern: str | None = None
    #: A group of errors, see `group_of`.
    error: str | None = None
    #: A tag of their ids.
    tag: str | None = None

    @property
    def is_all(self) -> bool:
        """True when every job of the view is meant."""
        return self.pattern is None and self.error is None and self.tag is None


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
        state = STATES[view]
        lengths = read_lengths(self.caller, self.shards, state.index)
        if state.is_due is None:
            return lengths
        later = f"({redis_time(self.caller):.6f}", f"({NEVER}"
        scheduled = read_counts(self.caller, self.shards, state.index, later)
        if not state.is_due:
            return scheduled
        # Those that wait for their own run stand at infinity, and count among the due.
        blocked = read_lengths(self.caller, self.shards, "blocked")
        return [
            max(length - later - never, 0) for length, later, never in zip(lengths, scheduled, blocked, strict=True)
        ]

    def steps(self, match: Match, start: Place | None = None) -> Iterator[Step]:
        """The steps of a walk, each read as it is taken."""
        now = redis_time(self.caller)
        tag = match.tag
        lengths = (
            self.lengths(match.view) if tag is None else count_tagged(self.caller, [(s, tag) for s in self.shards])
        )
        place: Place | None = start or Place(0, 0)
        while place is not None and (place := self._next_filled(place, lengths)) is not None:
            step = self._step(match, place, lengths, now)
            place = step.next
            yield step

    def newest(self, view: str, shards: Sequence[Shard], most: int) -> list[tuple[bytes, str | None]]:
        """The last ids of a view in each of these shards, with their errors, from two round trips."""
        ids = self.caller.read([("ZREVRANGE", f"{shard.prefix}{view}", 0, most - 1) for shard in shards], [])
        errors = self.errors_of(view, list(zip(shards, ids, strict=True)))
        return [row for some, texts in zip(ids, errors, strict=True) for row in zip(some, texts, strict=True)]

    def errors_of(self, view: str, found: Sequence[tuple[Shard, Sequence[bytes]]]) -> list[list[str | None]]:
        """The last error of each of these ids, shard by shard."""
        errors = STATES[view].errors
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

    def _step(self, match: Match, place: Place, lengths: Sequence[int], now: float) -> Step:
        shard, state = self.shards[place.shard], STATES[match.view]
        options = ("MATCH", match.pattern) if match.pattern else ()
        key, scan = f"{shard.prefix}{state.index}", "ZSCAN"
        if match.tag is not None:
            key, scan = f"{shard.prefix}{index_of_tag(match.tag)}", "SSCAN"
        ((cursor, page),) = self.caller.read([(scan, key, place.cursor, *options, "COUNT", STEP)], (0, []))
        scored = pairs(page) if match.tag is None else self._scored(shard, state.index, list(page))
        scores = ((id, float(score)) for id, score in scored)
        found = [(id, score) for id, score in scores if state.has(score, now)]
        if match.error is not None:
            (errors,) = self.errors_of(match.view, [(shard, [id for id, _ in found])])
            found = [row for row, error in zip(found, errors, strict=True) if group_of(error) == match.error]
        following = Place(place.shard, int(cursor)) if int(cursor) else Place(place.shard + 1, 0)
        is_last = self._next_filled(following, lengths) is None
        return Step(shard, found, min(STEP, lengths[place.shard]), None if is_last else following)

    def _scored(self, shard: Shard, view: str, ids: list[bytes]) -> list[tuple[bytes, float]]:
        """Those of these ids that are in a view, with their scores there."""
        scores = self.caller.read([("ZMSCORE", f"{shard.prefix}{view}", *ids)], [None] * len(ids))[0] if ids else []
        return [(id, score) for id, score in zip(ids, scores, strict=True) if score is not None]


def index_of_tag(tag: str) -> str:
    """The key of a shard, without its prefix, that has the ids of a tag (tags.lua)."""
    return f"tagged:{tag}"


def count_tagged(caller: Caller, asked: Sequence[tuple[Shard, str]]) -> list[int]:
    """The number of ids that have a tag in a shard, for each of these."""
    counts: list[int] = []
    for some in chunked(asked, AT_ONCE):
        counts += caller.read([("SCARD", f"{shard.prefix}{index_of_tag(tag)}") for shard, tag in some], 0)
    return counts


def is_glob(pattern: str) -> bool:
    """True when Redis would take it for more than the text itself."""
    return any(char in pattern for char in "*?[\\")
