"""Homes: which shard of a queue an id is in, for people's questions and actions; producers ask nobody (ways.py)."""

from __future__ import annotations

from collections.abc import Sequence

from lowkiq.job import shard_of
from lowkiq.queue import keys
from lowkiq.queue.call import Caller
from lowkiq.queue.keys import Layout
from lowkiq.queue.shard import Shard, written


def homes_of(shards: Sequence[Shard], id: bytes) -> list[Shard]:
    """The shards, of all of its queue, that may have an id: while they are being moved two, the old one first."""
    old = sum(shard.generation != shards[-1].generation for shard in shards)
    homes = [shards[shard_of(id, old)]] if old else []
    return [*homes, shards[old + shard_of(id, len(shards) - old)]]


def homes_in(namespace: str, queue: str, layout: int | Layout, id: bytes) -> list[Shard]:
    """The same, of a queue of that layout."""
    if isinstance(layout, Layout) and layout.is_moving:
        return [shard for one in (layout.old, layout.own) for shard in homes_in(namespace, queue, one, id)]
    count = layout if isinstance(layout, int) else layout.shards_count
    known = layout if isinstance(layout, int) else written(layout)
    return [Shard(namespace, queue, shard_of(id, count), known)]


def home_of(caller: Caller, shards: Sequence[Shard], id: bytes) -> Shard:
    """The shard that has an id; the old one as long as that is not known to have moved it. Raises RedisError."""
    *older, home = homes_of(shards, id)
    if not older:
        return home
    (old,) = older
    layout, *has = caller.read(
        [
            ("HGET", f"{old.prefix}meta", "layout"),
            ("HEXISTS", f"{old.prefix}payloads", id),
            ("HEXISTS", f"{old.prefix}morgue:payloads", id),
        ],
        0,
    )
    is_moved = isinstance(layout, bytes) and layout.endswith(keys.MOVED.encode())
    return home if is_moved and not any(has) else old
