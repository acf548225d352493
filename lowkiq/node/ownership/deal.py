"""
Deal: the part of each node in a queue's shards, from what the nodes tell of themselves. All nodes that know the same
come to the same answer; while they know different things, leases decide.

A node keeps what it has, up to its quota, so that no more moves than must: rendezvous hashing alone, cut to quotas,
moved up to four times as many. Hashing says the rest, which shards go and where to.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Final
from zlib import crc32

#: Nodes that are compared for a shard that moves: more would only take longer.
CANDIDATES: Final = 16


def deal(
    queue: str,
    shards_count: int,
    weights: Mapping[str, int],
    holders: Sequence[str | None],
    places: Mapping[int, str] | None = None,
) -> list[str | None]:
    """
    The node that each shard is to have.

    Args:
        weights: the nodes that run the queue, each with its threads.
        holders: the node that has each shard now, or None.
        places: shards that have a place already, as far as that runs the queue (elastic.py).
    """
    if not weights:
        return [None] * shards_count
    held: dict[str, list[int]] = {node: [] for node in weights}
    free: list[int] = []
    placed = {shard: node for shard, node in (places or {}).items() if node in held and shard < shards_count}
    for shard, holder in enumerate(holders):
        if shard not in placed:
            held.get(holder or "", free).append(shard)
    sizes = Counter(placed.values())
    quota = quotas(queue, shards_count, weights, {node: len(shards) + sizes[node] for node, shards in held.items()})
    for node, size in sizes.items():
        quota[node] = max(quota[node] - size, 0)
    dealt: list[str | None] = [placed.get(shard) for shard in range(shards_count)]
    for node, shards in held.items():
        if len(shards) > quota[node]:
            shards.sort(key=lambda shard: _rank(queue, shard, node))
            free += shards[: len(shards) - quota[node]]
            del shards[: len(shards) - quota[node]]
        for shard in shards:
            dealt[shard] = node
    room = {node: quota[node] - len(shards) for node, shards in sorted(held.items()) if quota[node] > len(shards)}
    names = list(room)
    for shard in sorted(free):
        first = crc32(f"{queue}\0{shard}".encode()) % len(names)
        some = (names[first:] + names[:first])[:CANDIDATES] if len(names) > CANDIDATES else names
        node = max(some, key=lambda node: _rank(queue, shard, node))
        dealt[shard] = node
        room[node] -= 1
        if not room[node]:
            names.remove(node)
    return dealt


def quotas(queue: str, shards_count: int, weights: Mapping[str, int], held: Mapping[str, int]) -> dict[str, int]:
    """
    The number of shards of each node, by its threads. The remainders go to the largest; of equal ones to nodes that
    have so many already, then by the hash, so that queues of few shards give them to different nodes.
    """
    total = sum(weights.values())
    quota = {node: shards_count * weight // total for node, weight in weights.items()}
    left = shards_count - sum(quota.values())
    first = heapq.nlargest(
        left,
        weights,
        key=lambda node: (shards_count * weights[node] % total, held[node] > quota[node], _rank(queue, -1, node)),
    )
    for node in first:
        quota[node] += 1
    return quota


def _rank(queue: str, shard: int, node: str) -> bytes:
    return blake2b(f"{queue}\0{shard}\0{node}".encode("utf-8", "surrogateescape"), digest_size=8).digest()
