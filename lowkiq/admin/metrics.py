"""Metrics: the numbers of queues and of their shards, now and since they began."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from lowkiq.queue import keys
from lowkiq.queue.call import Call, Caller, chunked, raise_first
from lowkiq.queue.shard import Shard


class ShardMetrics(msgspec.Struct, frozen=True):
    """The numbers of one shard."""

    queue: str
    shard: int
    length: int
    retries: int
    busy: int
    morgue_length: int
    #: Seconds until the oldest queued job is due (negative: overdue), None when nothing is queued.
    due_in: float | None
    processed: int
    failed: int
    pushed: int
    merged: int
    #: The node whose lease it has, also when that has run out; None when nobody has it.
    owner: str | None
    #: Seconds that the lease still has.
    lease_rest: float
    epoch: int

    @property
    def lag(self) -> float:
        """Seconds by which the oldest due job is late, 0 when nothing is due."""
        return max(-(self.due_in or 0.0), 0.0)

    @property
    def is_unowned(self) -> bool:
        """True when it has jobs due, or in a dead node's hands, and nobody to run them."""
        return not self.lease_rest and (self.busy > 0 or self.lag > 0)


class QueueMetrics(msgspec.Struct, frozen=True):
    """The numbers of one queue."""

    #: Queued ids: fresh and retries. Those that run now are `busy`.
    length: int
    fresh: int
    #: Ids that have failed and wait for their next try.
    retries: int
    #: Ids in the hands of nodes.
    busy: int
    #: Ids in the morgue.
    morgue_length: int
    #: Seconds by which the oldest due job is late, 0 when nothing is due.
    lag: float
    #: Jobs done, jobs failed, payloads pushed, and those of them that joined an id queued already.
    processed: int
    failed: int
    pushed: int
    merged: int


#: Numbers that are the sums of those of parts.
SUMMED: Final = ("length", "retries", "busy", "morgue_length", "processed", "failed", "pushed", "merged")


def known_queues(caller: Caller, namespace: str) -> dict[str, int]:
    """Every queue with its shards_count."""
    return {queue: layout.shards_count for queue, layout in read_layouts(caller, namespace).items()}


def read_layouts(caller: Caller, namespace: str) -> dict[str, keys.Layout]:
    """Every queue with its layout, as `register` knows it."""
    told: Mapping[bytes, bytes] = caller.command("HGETALL", keys.queues(namespace))
    return {queue.decode(): keys.Layout.parse(text) for queue, text in sorted(told.items())}


def read_shards(caller: Caller, shards: Sequence[Shard]) -> list[ShardMetrics]:
    """The numbers of each shard."""
    groups = list(chunked(shards, caller.shards_a_call))
    calls = [Call("stats", [shard.prefix for shard in some], [], list) for some in groups]
    replies = zip(groups, raise_first(caller.run_all(calls)), strict=True)
    return [
        _row(shard, row, float(now)) for some, (now, *rows) in replies for shard, row in zip(some, rows, strict=True)
    ]


def read_lengths(caller: Caller, shards: Sequence[Shard], key: str) -> list[int]:
    """The length of one key of each shard: "due", "retries", "claim" or "morgue"."""
    command, words = ("LLEN", 2) if key == "claim" else ("ZCARD", 1)
    groups = chunked(shards, caller.shards_a_call)
    calls = [Call("lengths", [shard.prefix for shard in some], [command, key], list) for some in groups]
    return [length // words for lengths in raise_first(caller.run_all(calls)) for length in lengths]


def by_queue(queues: Iterable[str], shards: Iterable[ShardMetrics]) -> dict[str, QueueMetrics]:
    """The numbers of each of these queues from those of their shards."""
    rows: dict[str, list[ShardMetrics]] = {queue: [] for queue in queues}
    for shard in shards:
        rows[shard.queue].append(shard)
    return {queue: total(some) for queue, some in rows.items()}


def total(parts: Iterable[QueueMetrics | ShardMetrics]) -> QueueMetrics:
    """The numbers of all of these together; the lag is the highest."""
    rows = list(parts)
    sums = {name: sum(getattr(row, name) for row in rows) for name in SUMMED}
    lag = max((row.lag for row in rows), default=0.0)
    return QueueMetrics(**sums, fresh=sums["length"] - sums["retries"], lag=lag)


def _row(shard: Shard, row: list[Any], now: float) -> ShardMetrics:
    *counts, oldest, processed, failed, pushed, merged, owner, rest, epoch = row
    due_in = float(oldest) - now if oldest else None
    counters = map(int, (processed, failed, pushed, merged))
    values: list[Any] = [*counts, due_in, *counters, owner.decode() or None, float(rest), int(epoch)]
    return ShardMetrics(shard.queue, shard.index, *values)  # the script's order is that of the fields
