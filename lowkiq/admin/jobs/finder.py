"""Finder: jobs by their ids over all queues, in a bounded number of round trips, however many queues there are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from lowkiq.admin.jobs.reader import Asked, JobPreview, JobReader, following
from lowkiq.admin.jobs.search import is_glob
from lowkiq.admin.metrics import read_lengths
from lowkiq.job import KEPT_BYTES, encode_id
from lowkiq.queue.call import Caller, chunked, pairs
from lowkiq.queue.homes import homes_in
from lowkiq.queue.keys import Layout
from lowkiq.queue.shard import Shard, shards_of

#: Ids looked at for one page of a pattern, and in one round trip.
SEARCHED_A_PAGE: Final = 3_000
STEP: Final = 500
#: Jobs of a page; a step may give some more. Shards whose lengths one round trip asks for, and those of a page.
FOUND, SHARDS_AT_ONCE, SHARDS_A_PAGE = 50, 1_000, 20_000
#: Queues whose claims are read in one round trip.
QUEUES_AT_ONCE: Final = 100
#: Characters of a pattern.
LONGEST: Final = 2_048
#: Payloads of a job that are read, and bytes of each.
LISTED_PAYLOADS, LISTED_BYTES = 1, 200
#: What a pattern looks through: index → where its jobs are. What runs is in no index.
INDICES: Final = {"due": "queue", "morgue": "morgue"}
#: The way to that, for people.
RUNNING: Final = "what runs is found by its exact id only"
#: What a job may be that is found nowhere.
GONE: Final = "it is done, deleted, or was never pushed"


class FoundJob(NamedTuple):
    queue: str
    job: JobPreview


class Findings(NamedTuple):
    """A page of what was found."""

    jobs: list[FoundJob]
    #: What gives the page after this one; None: there is none.
    next: str | None
    #: Of a pattern, about how many ids were looked at.
    scanned: int | None


class _Place(NamedTuple):
    """An index of a shard, its length, and Redis's cursor in it."""

    shard: Shard
    zset: str
    length: int
    cursor: int

    @property
    def text(self) -> str:
        """A cursor, as a URL holds it."""
        return f"{self.cursor}:{self.zset}:{self.shard.index}:{self.shard.queue}"


class _Start(NamedTuple):
    """The place that a page begins with, as a cursor tells."""

    cursor: int
    zset: str
    shard: int
    queue: str

    @classmethod
    def parse(cls, text: str) -> _Start:
        """Raises ValueError for what is no cursor."""
        match = re.fullmatch(r"([0-9]{1,20}):(due|morgue):([0-9]{1,9}):(.{1,1000})", text, re.DOTALL)
        if not match or int(match[1]) >= 2**64:  # Redis's cursors have 64 bits
            raise ValueError(f"{text[:40]!r} is no cursor of a search: take the one that the last page gave")
        return cls(int(match[1]), match[2], int(match[3]), match[4])


class Finder:
    """Looks through all queues, by their names."""

    def __init__(
        self,
        caller: Caller,
        namespace: str,
        queues: Mapping[str, int | Layout],
        *,
        load_error: Callable[[str], str],
        max_id_bytes: int,
    ) -> None:
        self._caller = caller
        self._namespace = namespace
        self._queues = dict(sorted(queues.items()))
        self._reader = JobReader(caller, (), load_error, max_id_bytes)

    def find(self, text: str, cursor: str | None = None, limit: int = FOUND) -> Findings:
        """
        Jobs with that id, or whose ids match a pattern, e.g. "order-*". Raises ValueError for no such cursor.

        Args:
            limit: jobs after which a page ends; its last step may give some more.
        """
        exact = self.places(text) if cursor is None else []
        if not is_glob(text):
            return Findings(exact, None, None)
        found = self._matching(text[:LONGEST], cursor, limit)
        known = {(one.queue, one.job.where, one.job.id) for one in exact}
        others = [one for one in found.jobs if (one.queue, one.job.where, one.job.id) not in known]
        return found._replace(jobs=exact + others)

    def places(self, id: str) -> list[FoundJob]:
        """The places of an exact id, in all queues."""
        try:
            encoded = encode_id(id, self._reader.max_id_bytes, errors=KEPT_BYTES)
        except ValueError:  # too long, or empty: nothing has such an id
            return []
        queues = self._queues.items()
        shards = [shard for queue, layout in queues for shard in homes_in(self._namespace, queue, layout, encoded)]
        found = [one for some in chunked(shards, QUEUES_AT_ONCE) for one in self._in(some, encoded)]
        by_queue = [(queue, [one.job for one in some]) for queue, some in groupby(found, lambda one: one.queue)]
        return [FoundJob(queue, job) for queue, jobs in by_queue for job in following(jobs)]

    def _in(self, shards: Sequence[Shard], id: bytes) -> list[FoundJob]:
        """The places of an id in these shards: of most queues two cheap questions tell that it has none."""
        commands = [
            command
            for shard in shards
            for command in (
                ("HEXISTS", f"{shard.prefix}payloads", id),
                ("HEXISTS", f"{shard.prefix}morgue:payloads", id),
                ("EXISTS", f"{shard.prefix}claim", f"{shard.prefix}asides"),
            )
        ]
        known = iter(self._caller.read(commands, 0))
        asked = [(where, shard, id) for shard in shards for where in ("queue", "morgue", "claim") if next(known)]
        return self._fetch(asked)

    def _fetch(self, asked: Sequence[Asked]) -> list[FoundJob]:
        found = self._reader.fetch_each(asked, LISTED_PAYLOADS, LISTED_BYTES)
        return [FoundJob(shard.queue, job) for (_, shard, _), job in found]

    def _shards(self, queue: str) -> list[Shard]:
        return shards_of(self._namespace, {queue: self._queues[queue]})

    def _matching(self, pattern: str, cursor: str | None, limit: int) -> Findings:
        start = _Start.parse(cursor) if cursor else _Start(0, "due", 0, "")
        found: list[FoundJob] = []
        scanned = 0
        for number, shards in enumerate(chunked(self._shards_from(start), SHARDS_AT_ONCE)):
            if number * SHARDS_AT_ONCE >= SHARDS_A_PAGE:
                return Findings(found, _Place(shards[0], "due", 0, 0).text, scanned)
            places = self._filled(shards, start)
            while places:
                if len(found) >= limit or scanned >= SEARCHED_A_PAGE:
                    return Findings(found, places[0].text, scanned)
                step = _step(places)
                rest = self._scan(step, pattern, found)
                scanned += sum(min(place.length, STEP) for place in step)
                places = [*rest, *places[len(step) :]]
        return Findings(found, None, scanned)

    def _shards_from(self, start: _Start) -> Iterator[Shard]:
        for queue in self._queues:
            if queue >= start.queue:
                shards = self._shards(queue)
                # Of a queue that is being resharded two have that index, and those before the second may come again.
                first, newest = start.shard if queue == start.queue else 0, shards[-1].generation
                yield from (shard for shard in shards if shard.index >= first or shard.generation < newest)

    def _filled(self, shards: Sequence[Shard], start: _Start) -> list[_Place]:
        """The indices of these shards that hold something, from the start on."""
        lengths = [read_lengths(self._caller, shards, zset) for zset in INDICES]
        places = []
        for shard, *counts in zip(shards, *lengths, strict=True):
            is_start = (shard.queue, shard.index) == (start.queue, start.shard)
            for zset, length in zip(INDICES, counts, strict=True):
                if length and not (is_start and zset < start.zset):  # "due" comes before "morgue"
                    cursor = start.cursor if is_start and zset == start.zset else 0
                    places.append(_Place(shard, zset, length, cursor))
        return places

    def _scan(self, step: Sequence[_Place], pattern: str, found: list[FoundJob]) -> list[_Place]:
        """Looks through a step: all of several small places, or a part of a large one. Returns what is left of that."""
        match = pattern.encode("utf-8", KEPT_BYTES)
        asked: dict[Asked, None] = {}  # a scan may give an id twice
        left = list(step)
        while left:
            commands = [
                ("ZSCAN", f"{one.shard.prefix}{one.zset}", one.cursor, "MATCH", match, "COUNT", STEP) for one in left
            ]
            replies = list(zip(left, self._caller.read(commands, (0, [])), strict=True))
            asked |= {(INDICES[one.zset], one.shard, id): None for one, (_, page) in replies for id, _ in pairs(page)}
            left = [one._replace(cursor=int(cursor)) for one, (cursor, _) in replies if int(cursor)]
            if len(step) == 1 and step[0].length > STEP:
                break
        found += self._fetch(list(asked))
        return left


def _step(places: Sequence[_Place]) -> Sequence[_Place]:
    """The first place, if it is large; else as many as have few ids together."""
    total = 0
    for number, place in enumerate(places):
        total += place.length
        if total > STEP:
            return places[: max(number, 1)]
    return places
