"""Holding: which ids of a queue somebody keeps from running."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lowkiq.admin.pauses import Hold, parse_hold
from lowkiq.queue.call import Caller, pairs
from lowkiq.queue.shard import Shard
from lowkiq.queue.unreadable import Unreadable, quoted

#: Ids that are read at a time.
AT_ONCE: Final = 100


def read_holds(caller: Caller, shards: Sequence[Shard], limit: int) -> list[Hold]:
    """The ids that are held, the first held first; of each shard no more than the limit."""
    pages = caller.read([("ZRANGE", f"{shard.prefix}held", 0, limit - 1, "WITHSCORES") for shard in shards], [])
    found = [one for shard, page in zip(shards, pages, strict=True) for one in _of_shard(caller, shard, pairs(page))]
    return sorted(found, key=lambda one: one.since)[:limit]


def read_hold(caller: Caller, shard: Shard, id: bytes) -> Hold | None:
    """Who holds an id; None: nobody does."""
    (since,) = caller.read([("ZSCORE", f"{shard.prefix}held", id)], None)
    return None if since is None else _of_shard(caller, shard, [(id, since)])[0]


def _of_shard(caller: Caller, shard: Shard, rows: Sequence[tuple[bytes, bytes | float]]) -> list[Hold]:
    key, met, told = f"{shard.prefix}holds", list[Unreadable](), list[bytes | None]()
    for first in range(0, len(rows), AT_ONCE):
        some = [id for id, _ in rows[first : first + AT_ONCE]]
        told += caller.read([("HMGET", key, *some)], [None] * len(some))[0]
    found = [parse_hold(met, quoted(key), *row, text) for row, text in zip(rows, told, strict=True)]
    caller.met.tell(key, met)
    return found
