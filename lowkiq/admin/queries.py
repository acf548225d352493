"""Queries: looks at the jobs of a queue, never at all of them at once."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from lowkiq.admin.search import error_told
from lowkiq.job import KEPT_BYTES, Job, encode_id, shard_of
from lowkiq.queue.call import Call, Caller, chunked, pairs, raise_first
from lowkiq.queue.shard import Shard

#: A bound of a range: a number, "-inf", "+inf", or "(5" for more (or less) than 5, as Redis writes them.
Bound = float | str
#: What a scan gives at a time, and ids in one fetch.
PAGE = 100
#: What fetch.lua says of an id that is to be asked for again.
LATER = b"later"


class Queries:
    """Looks at one queue and its morgue."""

    def __init__(
        self,
        caller: Caller,
        shards: Sequence[Shard],
        *,
        load_payload: Callable[[bytes], Any],
        load_error: Callable[[str], str],
        max_id_bytes: int,
        max_payloads: int,
    ) -> None:
        self._caller = caller
        self._shards = shards
        self._load_payload = load_payload
        self._load_error = load_error
        self._max_id_bytes = max_id_bytes
        self._max_payloads = max_payloads

    def fetch(self, ids: Iterable[str | int]) -> list[Job]:
        """The queued jobs with these ids; ids that are not queued are left out."""
        return self._fetch("queue", self._with_shards(ids))

    def morgue_fetch(self, ids: Iterable[str | int]) -> list[Job]:
        """The same of the morgue; `perform_in` is when the job got there."""
        return self._fetch("morgue", self._with_shards(ids))

    def range_by_perform_in(self, min: Bound = "-inf", max: Bound = "+inf", limit: int = 10) -> list[Job]:
        """Jobs by due time, the first to come first."""
        return self._fetch("queue", self._range("due", min, max, limit))

    def rev_range_by_perform_in(self, max: Bound = "+inf", min: Bound = "-inf", limit: int = 10) -> list[Job]:
        """Jobs by due time, the last to come first."""
        return self._fetch("queue", self._range("due", min, max, limit, reverse=True))

    def range_by_retry_count(self, min: Bound = "-inf", max: Bound = "+inf", limit: int = 10) -> list[Job]:
        """Jobs by retry_count, fresh ones (-1) first."""
        found = self._fresh(limit) if _includes_fresh(min, max) else []
        found += self._range("retries", min, max, limit - len(found))
        return self._fetch("queue", found)

    def rev_range_by_retry_count(self, max: Bound = "+inf", min: Bound = "-inf", limit: int = 10) -> list[Job]:
        """Jobs by retry_count, those that failed most first."""
        found = self._range("retries", min, max, limit, reverse=True)
        if _includes_fresh(min, max):
            found += self._fresh(limit - len(found))
        return self._fetch("queue", found)

    def morgue_range_by_updated_at(self, min: Bound = "-inf", max: Bound = "+inf", limit: int = 10) -> list[Job]:
        """Jobs of the morgue, those that have been there longest first."""
        return self._fetch("morgue", self._range("morgue", min, max, limit))

    def morgue_rev_range_by_updated_at(
        self,
        max: Bound = "+inf",
        min: Bound = "-inf",
        limit: int = 10,
    ) -> list[Job]:
        """Jobs of the morgue, the newest first."""
        return self._fetch("morgue", self._range("morgue", min, max, limit, reverse=True))

    def find(self, pattern: str) -> Iterator[Job]:
        """Queued jobs whose id matches a glob such as "order-*", in no order; reads on only as they are taken."""
        return self._scan("queue", "due", pattern)

    def morgue_find(self, pattern: str) -> Iterator[Job]:
        """The same of the morgue."""
        return self._scan("morgue", "morgue", pattern)

    def _scan(self, where: str, index: str, pattern: str) -> Iterator[Job]:
        for shard in self._shards:
            seen: set[bytes] = set()  # a scan may return an id twice while Redis resizes its table
            cursor = 0
            while True:
                cursor, page = self._caller.command(
                    "ZSCAN", f"{shard.prefix}{index}", cursor, "MATCH", pattern, "COUNT", PAGE
                )
                ids = [id for id, _ in page if id not in seen]
                seen.update(ids)
                yield from self._fetch(where, [(shard, id) for id in ids])
                if not int(cursor):
                    break

    def _range(
        self,
        index: str,
        low: Bound,
        high: Bound,
        limit: int,
        *,
        reverse: bool = False,
    ) -> list[tuple[Shard, bytes]]:
        if limit <= 0:
            return []
        command, first, last = ("ZREVRANGEBYSCORE", high, low) if reverse else ("ZRANGEBYSCORE", low, high)
        rows: list[tuple[float, int, bytes]] = []
        for some in chunked(enumerate(self._shards), PAGE):
            pages = self._caller.commands(
                [(command, f"{shard.prefix}{index}", first, last, "WITHSCORES", "LIMIT", 0, limit) for _, shard in some]
            )
            for (number, _), page in zip(some, pages, strict=True):
                rows += [(float(score), number, id) for id, score in pairs(page)]
            rows = (heapq.nlargest if reverse else heapq.nsmallest)(limit, rows)
        return [(self._shards[number], id) for _, number, id in rows]

    def _fresh(self, limit: int) -> list[tuple[Shard, bytes]]:
        """Queued ids that have never failed (of `due`, without an entry in `retries`), by due time within a shard."""
        found: list[tuple[Shard, bytes]] = []
        for shard in self._shards:
            start = 0
            while len(found) < limit:
                page = self._caller.command("ZRANGE", f"{shard.prefix}due", start, start + PAGE - 1)
                if not page:
                    break
                scores = self._caller.command("ZMSCORE", f"{shard.prefix}retries", *page)
                found += [(shard, id) for id, score in zip(page, scores, strict=True) if score is None]
                start += PAGE
        return found[: max(limit, 0)]

    def _with_shards(self, ids: Iterable[str | int]) -> list[tuple[Shard, bytes]]:
        encoded = [encode_id(id, self._max_id_bytes, errors=KEPT_BYTES) for id in ids]
        return [(self._shards[shard_of(id, len(self._shards))], id) for id in encoded]

    def _fetch(self, where: str, found: Sequence[tuple[Shard, bytes]]) -> list[Job]:
        jobs: dict[bytes, Job] = {}
        asked = found
        while asked:
            rows = self._rows(where, asked)
            jobs |= {id: self._job(id, row) for (_, id), row in rows if row is not None and row != LATER}
            asked = [of for of, row in rows if row == LATER]
        return [jobs[id] for _, id in found if id in jobs]

    def _rows(self, where: str, found: Sequence[tuple[Shard, bytes]]) -> list[tuple[tuple[Shard, bytes], Any]]:
        """What one round trip tells of these."""
        by_shard: dict[Shard, list[bytes]] = {}
        for shard, id in found:
            by_shard.setdefault(shard, []).append(id)
        asked = [(shard, some) for shard, ids in by_shard.items() for some in chunked(ids, PAGE)]
        calls: list[Call[list[Any]]] = [
            Call("fetch", [shard.prefix], [where, self._max_payloads, "", *some], list) for shard, some in asked
        ]
        results = raise_first(self._caller.run_all(calls))
        return [
            ((shard, id), row)
            for (shard, some), rows in zip(asked, results, strict=True)
            for id, row in zip(some, rows, strict=True)
        ]

    def _job(self, id: bytes, row: list[Any]) -> Job:
        at, retry_count, error, _, count, *payloads = row
        return Job(
            id=id.decode("utf-8", KEPT_BYTES),
            payloads=[self._payload(payload) for payload in payloads[::3]],
            scores=tuple(map(float, payloads[1::3])),
            perform_in=float(at),
            retry_count=int(retry_count) if retry_count else -1,
            error=error_told(error, self._load_error) if error else None,
            payload_count=int(count),
        )

    def _payload(self, data: bytes) -> Any:
        """A payload that can't be decoded is shown raw: a look at a broken job must not break."""
        try:
            return self._load_payload(data)
        except Exception:  # noqa: BLE001 (load_payload is the user's)
            return data


def _includes_fresh(low: Bound, high: Bound) -> bool:
    return _above(low, -1) and _above(high, -1, mirrored=True)


def _above(bound: Bound, value: float, *, mirrored: bool = False) -> bool:
    text = str(bound)
    exclusive, number = text.startswith("("), float(text.removeprefix("("))
    if mirrored:
        number, value = -number, -value
    return number < value if exclusive else number <= value
