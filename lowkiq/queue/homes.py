"""Homes: which shard of a queue an id is in, for people's questions and actions; producers ask nobody (ways.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

from lowkiq.errors import Moved
from lowkiq.job import shard_of
from lowkiq.queue import keys
from lowkiq.queue.call import Call, Caller
from lowkiq.queue.keys import Layout
from lowkiq.queue.shard import Shard

T = TypeVar("T")

#: The keys that have the jobs of a shard, for `home_of`.
JOBS: Final = ("payloads", "morgue:payloads")


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
    return [Shard(namespace, queue, shard_of(id, count), layout)]


def home_of(caller: Caller, shards: Sequence[Shard], id: bytes, of: Sequence[str] = ()) -> Shard:
    """
    The shard that has an id, or is to have it: the old one until that was moved, and has nothing of it any more. Raises
    RedisError.

    Args:
        of: names of keys, for who wants to read in those only. Who acts on an id leaves that out: as long as anything
            of it is to come nobody can.
    """
    *older, home = homes_of(shards, id)
    if not older:
        return home
    (old,) = older
    return old if caller.run(Call("home", [old.prefix], [id, *of], bool)) else home


def act_at(caller: Caller, shard: Shard, call: Call[T]) -> T:
    """Runs a call on ids of a shard. Raises BeingResharded, also where a shard that was moved would send it on."""
    try:
        return caller.run(call)
    except Moved as error:
        raise keys.being_moved(f"{shard.queue}:{shard.index}") from error
