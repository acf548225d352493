"""JobReader: finds ids in their shards and fetches their jobs, in few round trips. Never all of a queue at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from lowkiq.failure import parts_of
from lowkiq.job import KEPT_BYTES, encode_id, parse_tags
from lowkiq.queue.call import Call, Caller, chunked, grouped, raise_first
from lowkiq.queue.homes import JOBS, home_of
from lowkiq.queue.shard import Shard
from lowkiq.queue.unreadable import LARGEST, Unreadable, bounded, finite, number_in, of_another_type, parsed, quoted

#: Ids in one fetch.
FETCHED_AT_ONCE: Final = 100
#: What fetch.lua says of an id that is to be asked for again.
LATER: Final = b"later"
#: How it begins of one whose record is none; then comes the key of that.
UNREADABLE: Final = b"unreadable "
#: Where it says that a job is that waits for its own run; and one that is held.
BEHIND, HELD = b"behind", b"held"
#: And where of one that is blocked; it tells since when, then.
BLOCKED: Final = b"blocked"

#: An id and the shard that it belongs to; and the place to look for it: "queue", "claim" or "morgue".
Found = tuple[Shard, bytes]
Asked = tuple[str, Shard, bytes]


class PayloadPreview(msgspec.Struct, frozen=True):
    """A payload, perhaps cut."""

    score: float
    #: Bytes that it has.
    size: int
    #: Those of them that were read.
    data: bytes


class JobPreview(msgspec.Struct, frozen=True):
    """A job in one of its places, with as many of its payloads as were asked for."""

    id: str
    shard: int
    #: "queue", "claim" (in the hands of a node) or "morgue".
    where: str
    #: When it is due; of the morgue, when it got there; of a blocked one, since when.
    at: float
    #: -1 fresh, 0 after the first failure.
    retry_count: int
    #: Its type and message.
    error: str | None
    #: Deaths of nodes that had it in hand.
    crashes: int
    #: It is queued while its id runs: it follows that run, and is not due before `at`.
    waits_for_own_run: bool
    payload_count: int
    #: The lowest of them.
    payloads: list[PayloadPreview]
    #: Where the error was raised, as far as it is kept; None: nothing but `error` is.
    traceback: str | None = None
    tags: tuple[str, ...] = ()
    #: It waits for a person, since `at`.
    is_blocked: bool = False
    #: Somebody holds it, or it waits for other jobs.
    is_held: bool = False


class JobReader(NamedTuple):
    """Reads jobs of one queue and its morgue."""

    caller: Caller
    shards: Sequence[Shard]
    load_error: Callable[[str], str]
    max_id_bytes: int

    def find(self, id: str | int) -> Found:
        """The shard of an id. Raises ValueError for what can't be one."""
        encoded = encode_id(id, self.max_id_bytes, errors=KEPT_BYTES)
        return home_of(self.caller, self.shards, encoded, JOBS), encoded

    def fetch(self, asked: Sequence[Asked], payloads: int, cut: int | None = None) -> list[JobPreview]:
        """The jobs asked for that are still there, in order, with so many payloads at most, cut at so many bytes."""
        return [job for _, job in self.fetch_each(asked, payloads, cut)]

    def fetch_each(
        self, asked: Sequence[Asked], payloads: int, cut: int | None = None
    ) -> list[tuple[Asked, JobPreview]]:
        """The same, each with what was asked for."""
        jobs: dict[Asked, JobPreview] = {}
        left = asked
        while left:
            rows = self._rows(left, payloads, "" if cut is None else cut)
            found = ((one, self._read(one, row, payloads)) for one, row in rows if row is not None and row != LATER)
            jobs |= {one: preview for one, preview in found if preview is not None}
            left = [one for one, row in rows if row == LATER]
        return [(one, jobs[one]) for one in asked if one in jobs]

    def _rows(self, asked: Sequence[Asked], payloads: int, cut: int | str) -> list[tuple[Asked, Any]]:
        """The reply for each of these, from one round trip."""
        groups = grouped(((where, shard), id) for where, shard, id in asked)
        pages = [(*group, some) for group, ids in groups.items() for some in chunked(ids, FETCHED_AT_ONCE)]
        calls: list[Call[list[Any]]] = [
            Call("fetch", [shard.prefix], [where, payloads, cut, *some], list) for where, shard, some in pages
        ]
        replies = raise_first(self.caller.run_all(calls))
        return [
            ((where, shard, id), row)
            for (where, shard, some), rows in zip(pages, replies, strict=True)
            for id, row in zip(some, rows, strict=True)
        ]

    def _read(self, asked: Asked, row: list[Any] | bytes, payloads: int) -> JobPreview | None:
        """The job of a row; None where it can't be read. Who looks at no payloads does not say that these are right."""
        where, shard, id = asked
        met: list[Unreadable] = []
        preview = None
        if not isinstance(row, bytes) or row.startswith(UNREADABLE):
            holder = row.removeprefix(UNREADABLE) if isinstance(row, bytes) else row[4]
            key = quoted(shard.prefix.encode() + (b"payloads" if holder in {BEHIND, BLOCKED, HELD} else holder))
            remedy = f"UNLINK {key}" if where == "claim" else f"HDEL {key} {quoted(id)}"
            preview = parsed(met, f"{key} {quoted(id)}", remedy, self._preview, met, where, shard, id, row)
        elif row:
            met.append(of_another_type(row))
        if met or payloads:
            self.caller.met.tell(f"{where} {shard.prefix} {quoted(id)}", met)
        return preview

    def _preview(self, met: list[Unreadable], where: str, shard: Shard, id: bytes, row: Any) -> JobPreview:
        if isinstance(row, bytes):
            raise ValueError("it is no record of a job")
        at, retry_count, error, crashes, holder, tags, payload_count, *payloads = row
        parked = holder in {BEHIND, HELD}
        text, frames = parts_of(error_text(error, self.load_error)) if error else (None, None)
        triples = zip(payloads[::3], payloads[1::3], payloads[2::3], strict=True)
        return JobPreview(
            id=id.decode("utf-8", KEPT_BYTES),
            shard=shard.index,
            where=where,
            at=(own_due_time(met, shard, id, at) or 0.0) if parked else bounded(at),
            retry_count=max(min(round(bounded(retry_count)), LARGEST), -1) if retry_count else -1,
            error=text,
            crashes=number_in(met, f"{shard.prefix}crashes", id, crashes),
            waits_for_own_run=holder == BEHIND,
            payload_count=int(payload_count),
            payloads=[PayloadPreview(finite(score), int(size), data) for data, score, size in triples],
            traceback=frames,
            tags=parse_tags(tags),
            is_blocked=holder == BLOCKED,
            is_held=holder == HELD,
        )


def following(places: Sequence[JobPreview]) -> list[JobPreview]:
    """All places of an id: what is queued of it follows its run. Redis notes it only once a claim meets the id."""
    runs = any(place.where == "claim" for place in places)
    return [
        msgspec.structs.replace(place, waits_for_own_run=True)
        if runs and place.where == "queue" and not place.is_held
        else place
        for place in places
    ]


def own_due_time(met: list[Unreadable], shard: Shard, id: bytes, text: bytes) -> float | None:
    """When what waits for its own run is due; None, and a note, if that is no time."""
    where = f"{quoted(f'{shard.prefix}behind')} {quoted(id)}"
    # Without one it would wait for ever. At 0 it goes on once its run is over.
    return parsed(met, where, f"HSET {where} 0", finite, text)


def error_text(stored: bytes, load_error: Callable[[str], str]) -> str:
    """An error for people. One that can't be loaded is shown as it is stored: Lowkiq's own texts were never dumped."""
    text = stored.decode("utf-8", "replace")
    try:
        return str(load_error(text))
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 (load_error is the user's, and a look ends nobody)
        return text
