"""Holding: which ids of a queue somebody keeps from running."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from lowkiq.admin.metrics import read_hashes
from lowkiq.admin.pauses import Hold, Waits, parse_hold
from lowkiq.after import OPEN, circle, part_name
from lowkiq.errors import LowkiqError
from lowkiq.job import KEPT_BYTES
from lowkiq.queue.call import Caller, chunked, pairs
from lowkiq.queue.homes import home_of
from lowkiq.queue.shard import Shard
from lowkiq.queue.unreadable import Unreadable, quoted
from lowkiq.transport.server import Command

#: Ids that are read at a time.
AT_ONCE: Final = 100
#: Of what an id waits for, how many are told of.
SHOWN: Final = 10
#: Jobs among which a circle is looked for.
STEPS: Final = 50


def read_holds(caller: Caller, shards: Sequence[Shard], limit: int) -> list[Hold]:
    """The ids that are held, the first held first; of each shard no more than the limit."""
    pages = caller.read([("ZRANGE", f"{shard.prefix}held", 0, limit - 1, "WITHSCORES") for shard in shards], [])
    rows = [(shard, *one) for shard, page in zip(shards, pages, strict=True) for one in pairs(page)]
    return sorted(_holds(caller, rows), key=lambda one: one.since)[:limit]


def read_holds_of(caller: Caller, ids: Sequence[tuple[Shard, bytes]]) -> list[Hold | None]:
    """Who holds each of these ids, each with its shard; None: nobody does."""
    since = caller.read([("ZSCORE", f"{shard.prefix}held", id) for shard, id in ids], None)
    holds = iter(_holds(caller, [(*one, at) for one, at in zip(ids, since, strict=True) if at is not None]))
    return [None if at is None else next(holds) for at in since]


def read_gathered(caller: Caller, shards: Sequence[Shard], most: int) -> dict[str, list[tuple[Hold, int]]]:
    """Queue → ids that somebody holds in these shards, so many of each at most, with the payloads that each has."""
    prefixes, met = [shard.prefix for shard in shards], list[Unreadable]()
    told = read_hashes(caller, [f"{prefix}holds" for prefix in prefixes], most)
    rows = [(shard, id, text) for shard, texts in zip(shards, told, strict=True) for id, text in texts.items()]
    since = caller.read([("ZSCORE", f"{shard.prefix}held", id) for shard, id, _ in rows], None)
    counts = caller.read([("ZCARD", f"{shard.prefix}payloads:".encode() + id) for shard, id, _ in rows], 0)
    found: dict[str, list[tuple[Hold, int]]] = {}
    for (shard, id, text), score, count in zip(rows, since, counts, strict=True):
        if score is not None:
            hold = parse_hold(met, quoted(f"{shard.prefix}holds"), id, score, text)
            found.setdefault(shard.queue, []).append((hold, count))
    return found


def read_circle(
    caller: Caller, shards_of: Callable[[str], Sequence[Shard]], queue: str, hold: Hold
) -> tuple[tuple[str, str], ...]:
    """Jobs that wait for one another, as far as a few steps from an id show them. `shards_of` may raise LowkiqError."""
    known: dict[tuple[str, str], Sequence[tuple[str, str]]] = {(queue, hold.id): hold.waits.first if hold.waits else ()}
    ahead = list(known[queue, hold.id])
    while ahead and len(known) < STEPS:
        one = ahead.pop(0)
        if one in known:
            continue
        found, id = None, one[1].encode("utf-8", KEPT_BYTES)
        with contextlib.suppress(LowkiqError):
            (found,) = read_holds_of(caller, [(home_of(caller, shards_of(one[0]), id, ["held"]), id)])
        known[one] = found.waits.first if found and found.waits else ()
        ahead += known[one]
    return tuple(circle(known) or ())


def read_waited_for(caller: Caller, shard: Shard, ids: Sequence[bytes]) -> list[str]:
    """Those of some ids of a shard for which other jobs wait (waiting.lua)."""
    (found,) = caller.read([("ZMSCORE", f"{shard.prefix}waiters", *ids)], [None] * len(ids))
    return [id.decode("utf-8", KEPT_BYTES) for id, score in zip(ids, found, strict=True) if score is not None]


def _holds(caller: Caller, rows: Sequence[tuple[Shard, bytes, bytes | float]]) -> Iterator[Hold]:
    """The holds of ids, each with its shard and since when, and for what they wait (waiting.lua)."""
    met: dict[str, list[Unreadable]] = {f"{shard.prefix}holds": [] for shard, _, _ in rows}
    for some in chunked(rows, AT_ONCE):
        commands: list[Command] = []
        for shard, id, _ in some:
            each = shard.prefix.encode() + b"waits:" + id
            commands += (("HGET", f"{shard.prefix}holds", id), ("HGET", f"{shard.prefix}waits", id))
            commands += (("ZCARD", each), ("ZRANGE", each, 0, SHOWN - 1))
        replies = iter(caller.read(commands, None))
        for (shard, id, since), (told, done, left, names) in zip(some, zip(*[replies] * 4, strict=True), strict=True):
            key = f"{shard.prefix}holds"
            hold = parse_hold(met[key], quoted(key), id, since, told)
            if done is None:
                yield hold
            else:
                waits = _waits(int(done) if done.isdigit() else 0, int(left or 0), names or [])
                yield msgspec.structs.replace(hold, waits=waits, by_person=told is not None)
    for key, found in met.items():
        caller.met.tell(key, found)


def _waits(done: int, left: int, names: Sequence[bytes]) -> Waits:
    texts = [name.decode("utf-8", KEPT_BYTES) for name in names]
    jobs = [text for text in texts if not text.startswith(OPEN)]
    batches = len(texts) - len(jobs)  # mostly asked for first, so they are among the first
    first: list[tuple[str, str]] = []
    for text in jobs:
        with contextlib.suppress(ValueError):  # anybody may write to Redis
            first.append(part_name(text))
    return Waits(left - batches, done + left - batches, tuple(first), batches > 0)
