"""
Paging: pages through an index of all shards as if it were one, never reading more than a page of it. The first due job
of a thousand shards is among the first of each; so one read of their heads shows which few to read.

Ids that wait for their own run stand at the end of `due`, at "inf", and their own due times in the hash `behind`. They
are no more than the jobs in hand, so they are read as they are, and take their places among the others.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from lowkiq.admin.jobs.reader import own_due_time
from lowkiq.admin.metrics import read_hashes, read_lengths
from lowkiq.queue.call import Argument, Call, Caller, chunked, pairs, raise_first
from lowkiq.queue.shard import Shard
from lowkiq.queue.unreadable import Unreadable

_CURSOR: Final = re.compile(r"([-+.0-9einf]{1,40}):([0-9]{1,9}):([0-9]{1,12})")

#: A bound of a range: a number, "-inf", "+inf", or "(5" for more (or less) than 5, as Redis writes them.
Bound = float | str
Bounds = tuple[Bound, Bound]
EVERYTHING: Final[Bounds] = (-math.inf, math.inf)
#: The index at whose end ids wait for their own run, and the hash of when they are due.
DUE: Final = "due"
WAITING: Final = "behind"
#: Waiting ids that are read of a shard: as many as a claim may hold.
MOST_WAITING: Final = 1_000


class Cursor(NamedTuple):
    """The last row of a page. Rows are ordered by score, then shard, then id."""

    score: float
    shard: int
    #: Rows of that score and shard so far: a thousand jobs can be due at the same time.
    ties: int

    @property
    def text(self) -> str:
        """As a URL holds it."""
        return f"{self.score!r}:{self.shard}:{self.ties}"

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """Raises ValueError for what is no cursor."""
        if match := _CURSOR.fullmatch(text):
            with suppress(ValueError):  # "1e" and the like
                return cls(float(match[1]), int(match[2]), int(match[3]))
        raise ValueError(f"{text[:80]!r} is no cursor: take the one that the last page gave")


class Range(NamedTuple):
    """A part of an index: its bounds, in the order of reading, and how many rows of it to skip."""

    first: Argument
    last: Argument
    skip: int


class Row(NamedTuple):
    """An id in an index."""

    score: float
    shard: int
    id: bytes


def read_in_order(
    caller: Caller,
    shards: Sequence[Shard],
    index: str,
    *,
    bounds: Bounds = EVERYTHING,
    after: Cursor | None = None,
    limit: int,
    reverse: bool = False,
) -> tuple[list[tuple[Shard, bytes]], Cursor | None]:
    """
    A page of ids, and the cursor for the next; None at the end. While jobs come and go, one that moves across the
    edge of a page, or has the very score of that edge, may be seen twice, or on no page. Raises ValueError for a cursor
    outside the bounds: it is of another list.
    """
    if after is not None and not _is_within(after.score, bounds):
        raise ValueError(f"{after.text!r} is no cursor of this list: take the one that its last page gave")
    waiting = _read_waiting(caller, shards) if index == DUE else {}
    reader = _Reader(caller, shards, index, bounds, after, reverse, waiting)
    heads = sorted(reader.heads(), key=reader.key)
    best = list(dict.fromkeys(row.shard for row in heads[: limit + 1]))
    # A shard whose head is the third has at most all but two of the rows.
    rows = sorted([*reader.read(best, range(limit + 1, 0, -1)), *reader.rows_of_waiting()], key=reader.key)
    page = rows[:limit]
    following = _cursor(page, after) if len(rows) > limit else None
    return [(shards[row.shard], row.id) for row in page], following


class _Reader(NamedTuple):
    caller: Caller
    shards: Sequence[Shard]
    zset: str
    bounds: Bounds
    after: Cursor | None
    reverse: bool
    #: Number of a shard → its ids that wait for their own run, and when they are due.
    waiting: Mapping[int, Mapping[bytes, float]]

    def heads(self) -> list[Row]:
        """The first score after the cursor in each shard, or two where the cursor is; without ids."""
        ranges = [(number, range_) for number in range(len(self.shards)) for range_ in self._ranges(number)]
        groups = list(chunked(ranges, self.caller.shards_a_call))
        replies = raise_first(self.caller.run_all(list(map(self._heads, groups))))
        scores = [score for some in replies for score in some]
        return [Row(float(score), number, b"") for (number, _), score in zip(ranges, scores, strict=True) if score]

    def read(self, numbers: Sequence[int], limits: Sequence[int]) -> list[Row]:
        """The first rows after the cursor of each of these shards, so many of each, in the order of the shard."""
        limited = zip(numbers, limits, strict=False)
        ranges = [(number, limit, range_) for number, limit in limited for range_ in self._ranges(number)]
        pages = self.caller.read([
            (self._command, f"{self.shards[number].prefix}{self.zset}", *bounds, "WITHSCORES", "LIMIT", skip, limit)
            for number, limit, (*bounds, skip) in ranges
        ], [])  # fmt: skip
        return [
            Row(float(score), number, id)
            for (number, _, _), page in zip(ranges, pages, strict=True)
            for id, score in pairs(page)
        ]

    def rows_of_waiting(self) -> list[Row]:
        """All rows of waiting ids after the cursor. Of one score and shard they come after the others."""
        rows = [Row(score, number, id) for number, scores in self.waiting.items() for id, score in scores.items()]
        rows = sorted((row for row in rows if _is_within(row.score, self.bounds)), key=lambda row: row.id)
        rows.sort(key=self.key)
        if self.after is None:
            return rows
        edge = self.key(Row(self.after.score, self.after.shard, b""))
        left = [row for row in rows if self.key(row) >= edge]
        is_tied = left and self.key(left[0]) == edge
        return left[max(self.after.ties - self._others(self.after), 0) :] if is_tied else left

    def _others(self, edge: Cursor) -> int:
        """The number of rows of that score and shard that do not wait."""
        key, score = f"{self.shards[edge.shard].prefix}{self.zset}", repr(edge.score)
        return int(self.caller.read([("ZCOUNT", key, score, score)], 0)[0])

    def key(self, row: Row) -> tuple[float, int]:
        """Sorts rows; those of one shard keep the order in which they were read."""
        return (-row.score if self.reverse else row.score, row.shard)

    @property
    def _command(self) -> str:
        return "ZREVRANGEBYSCORE" if self.reverse else "ZRANGEBYSCORE"

    def _heads(self, ranges: Sequence[tuple[int, Range]]) -> Call[list[bytes]]:
        prefixes = [self.shards[number].prefix for number, _ in ranges]
        bounds = (word for _, words in ranges for word in words)
        return Call("heads", prefixes, [self.zset, self._command, *bounds], list)

    def _ranges(self, number: int) -> list[Range]:
        """The ranges that read on in a shard. They skip only rows of the cursor's score: others were on no page yet."""
        lowest, highest = self.bounds
        if number in self.waiting and highest in _INFINITE:
            highest = "(inf"
        first, last = (highest, lowest) if self.reverse else (lowest, highest)
        after = self.after
        if after is None:
            return [Range(first, last, 0)]
        edge = repr(after.score)
        if number > after.shard:
            return [Range(edge, last, 0)]
        ties = [Range(edge, edge, after.ties)] if number == after.shard else []
        return [*ties, Range(f"({edge}", last, 0)]


#: A range's upper bound that leaves nothing out.
_INFINITE: Final = (math.inf, "inf", "+inf")


def narrowed(bounds: Bounds, low: Bound | None, high: Bound | None) -> Bounds:
    """These bounds, or narrower ones."""
    lowest, highest = bounds
    if low is not None and _edge(low, 1) > _edge(lowest, 1):
        lowest = low
    if high is not None and _edge(high, -1) < _edge(highest, -1):
        highest = high
    return lowest, highest


def _is_within(score: float, bounds: Bounds) -> bool:
    low, high = bounds
    return _edge(low, 1) <= (score, 0) <= _edge(high, -1)


def _edge(bound: Bound, beyond: int) -> tuple[float, int]:
    """A bound in its order among scores: "(5" is a little more than 5 as the lowest, and less as the highest."""
    text = str(bound)
    return float(text.removeprefix("(")), beyond if text.startswith("(") else 0


def _read_waiting(caller: Caller, shards: Sequence[Shard]) -> dict[int, dict[bytes, float]]:
    """The ids of each shard that has some, with their own due times. What is no time is told of, and left out."""
    lengths = read_lengths(caller, shards, WAITING)
    some = [number for number, length in enumerate(lengths) if length]
    hashes = read_hashes(caller, [f"{shards[number].prefix}{WAITING}" for number in some], MOST_WAITING)
    return {number: _due_times(caller, shards[number], texts) for number, texts in zip(some, hashes, strict=True)}


def _due_times(caller: Caller, shard: Shard, texts: Mapping[bytes, bytes]) -> dict[bytes, float]:
    met: list[Unreadable] = []
    found = {id: own_due_time(met, shard, id, text) for id, text in texts.items()}
    caller.met.tell(f"{shard.prefix}{WAITING}", met)
    return {id: due for id, due in found.items() if due is not None}


def _cursor(page: Sequence[Row], after: Cursor | None) -> Cursor:
    last = page[-1]
    ties = sum(row.score == last.score and row.shard == last.shard for row in page)
    if after is not None and (after.score, after.shard) == (last.score, last.shard):
        ties += after.ties
    return Cursor(last.score, last.shard, ties)
