"""Metrics: the numbers of queues and of their shards, now and since they began."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import msgspec

from lowkiq.admin.pauses import Pause, parse_pause
from lowkiq.queue import keys
from lowkiq.queue.call import Argument, Call, Caller, chunked, raise_first
from lowkiq.queue.shard import Shard
from lowkiq.queue.unreadable import Unreadable, bounded, number_in, of_another_type, parsed, quoted
from lowkiq.settings import QUEUE_NAME


class ShardMetrics(msgspec.Struct, frozen=True):
    """The numbers of one shard."""

    queue: str
    shard: int
    length: int
    retries: int
    waiting: int
    busy: int
    claims: int
    morgue_length: int
    #: Seconds until the oldest queued job is due (negative: overdue), None when nothing is queued. Those that wait for
    #: their own run are left out: they are not late.
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
    #: Queued ids that are due later, those that have failed among them.
    scheduled: int = 0
    #: Who has paused it, if somebody has, and whether its node has confirmed that nothing starts until it is resumed.
    pause: Pause | None = None
    is_at_rest: bool = False
    #: Ids that somebody holds, queued or not.
    held: int = 0
    #: Queued ids that wait for a person, and since when the first of them does.
    blocked: int = 0
    blocked_since: float | None = None
    #: Payloads that `keep` has dropped, since another one of their id was to be kept.
    superseded: int = 0
    #: Since when the first of what follows from its jobs waits to be taken along; None: nothing does.
    unsent_since: float | None = None
    #: Ids that wait for other jobs, and since when the first of them does.
    dependent: int = 0
    dependent_since: float | None = None
    #: When the next of its recurring jobs fires; None: none does.
    fires_at: float | None = None
    #: How often its queue was resharded, and one more; a lower one than others' is of a shard that is being moved.
    generation: int = 1

    @property
    def place(self) -> tuple[str, int]:
        """What it goes by where shards of all generations are told apart."""
        return keys.of_generation(self.queue, self.generation), self.shard

    @property
    def lag(self) -> float:
        """Seconds by which the oldest due job is late, 0 when nothing is due."""
        return max(0.0, -(self.due_in or 0.0))

    @property
    def paused(self) -> int:
        """1 if it is paused."""
        return int(self.pause is not None)

    @property
    def restless(self) -> int:
        """1 if it is paused and what was claimed of it may still start."""
        return int(self.pause is not None and not self.is_at_rest)

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
    #: Queued ids that wait for their own run: they are in hand, and what was pushed to them since follows that run; and
    #: those that are held.
    waiting: int
    #: Ids in the hands of nodes, and claims that hold them. A shard can have several, all of one node.
    busy: int
    claims: int
    #: Ids in the morgue.
    morgue_length: int
    #: Seconds by which the oldest due job is late, 0 when nothing is due. What waits for its own run is not late.
    lag: float
    #: Jobs done, jobs failed, payloads pushed, and those of them that joined an id queued already.
    processed: int
    failed: int
    pushed: int
    merged: int
    #: Queued ids that are due, or wait for their own run, and those that are due later: together all that are queued.
    #: Ids that have failed are among both.
    due: int = 0
    scheduled: int = 0
    #: Shards that are paused, and those of them of which what was claimed may still start.
    paused: int = 0
    restless: int = 0
    #: Ids that somebody holds. What is queued of them counts as waiting, too.
    held: int = 0
    #: Queued ids that wait for a person, and are in none of the last two; and since when the first of them does.
    blocked: int = 0
    blocked_since: float | None = None
    #: Payloads that `keep` has dropped, since another one of their id was to be kept.
    superseded: int = 0


#: Characters of a queue's name, and queues and shards in all, that are read: somebody may have written millions.
LONGEST_NAME, MOST_QUEUES, MOST_SHARDS_IN_ALL = 1_000, 10_000, 2 * keys.MOST_SHARDS
#: Seconds for which a shard that can't be read is told of, unless it is read again before: others have their turns.
SHARD_KEPT: Final = 900.0
#: The counters of a shard, and the keys of which one exists in any that holds a job or is paused.
COUNTERS: Final = ("processed", "failed", "pushed", "merged", "superseded")
HOLDING: Final = ("due", "claim", "asides", "morgue", "paused", "held")
#: Numbers that are the sums of those of parts.
SUMMED: Final = (
    *("length", "retries", "waiting", "busy", "claims", "morgue_length", "scheduled", "blocked", "held"),
    *("processed", "failed", "pushed", "merged", "superseded", "paused", "restless"),
)


def known_queues(caller: Caller, namespace: str) -> dict[str, int]:
    """Every queue with its shards_count."""
    return {queue: layout.shards_count for queue, layout in read_layouts(caller, namespace).items()}


def shards_count_of(layout: int | keys.Layout) -> int:
    """The number of shards that a queue of that layout has, or gets."""
    return layout if isinstance(layout, int) else layout.shards_count


def read_layouts(caller: Caller, namespace: str) -> dict[str, keys.Layout]:
    """Every queue with its layout, as `register` knows it."""
    key, found, layouts = keys.queues(namespace), list[Unreadable](), dict[str, keys.Layout]()
    shards = 0
    # The smallest first: one of somebody else's making that is too large leaves out itself, and none of ours.
    (texts,) = read_hashes(caller, [key], MOST_QUEUES)
    told = sorted((len(text), text, queue) for queue, text in texts.items())
    for _, text, queue in told:
        remedy = f"HDEL {quoted(key)} {quoted(queue)}"
        layout = parsed(found, f"{quoted(key)} {quoted(queue)}", remedy, _layout_of, queue, text)
        if layout is None:
            continue
        shards += layout.shards_count
        if shards > MOST_SHARDS_IN_ALL:
            why = f"all queues together would have more than {MOST_SHARDS_IN_ALL:,} shards"
            found.append(Unreadable(f"{quoted(key)} {quoted(queue)}", why, remedy))
            break
        layouts[queue.decode()] = layout
    if len(told) >= MOST_QUEUES:
        found.append(Unreadable(quoted(key), f"it has more than {MOST_QUEUES:,} queues", f"UNLINK {quoted(key)}"))
    caller.met.tell(key, found)
    return dict(sorted(layouts.items()))


def read_hashes(caller: Caller, keys: Sequence[str], most: int) -> list[dict[bytes, bytes]]:
    """The fields of each hash, or the first `most` that a scan gives. Hashes of few fields take one round trip."""
    rows: dict[str, dict[bytes, bytes]] = {key: {} for key in keys}
    left = dict.fromkeys(keys, 0)
    while left:
        replies = caller.read([("HSCAN", key, cursor, "COUNT", most) for key, cursor in left.items()], (0, []))
        for key, (cursor, page) in zip(list(left), replies, strict=True):
            rows[key] |= page if isinstance(page, Mapping) else dict(zip(page[::2], page[1::2], strict=True))
            left[key] = int(cursor)
        left = {key: cursor for key, cursor in left.items() if cursor and len(rows[key]) < most}
    return [dict(islice(found.items(), most)) for found in rows.values()]


def _layout_of(queue: bytes, text: bytes) -> keys.Layout:
    name = queue.decode("utf-8", "replace")
    if len(queue) > LONGEST_NAME or not QUEUE_NAME.fullmatch(name):
        raise ValueError("no worker can have a queue of that name")
    return keys.Layout.parse(text)


def read_shards(caller: Caller, shards: Sequence[Shard]) -> list[ShardMetrics]:
    """The numbers of each shard; 0 is what can't be read."""
    groups = list(chunked(shards, caller.shards_a_call))
    calls = [Call("stats", [shard.prefix for shard in some], [], list) for some in groups]
    replies = zip(groups, raise_first(caller.run_all(calls)), strict=True)
    return [
        _row(caller, shard, row, float(now))
        for some, (now, *rows) in replies
        for shard, row in zip(some, rows, strict=True)
    ]


def read_counters(caller: Caller, shards: Sequence[Shard]) -> list[ShardMetrics]:
    """The numbers of shards that hold nothing, whose owners nobody asks for: those of what they have done."""
    replies = caller.read([("HMGET", shard.prefix + "meta", *COUNTERS) for shard in shards], [None] * len(COUNTERS))
    return [
        _row(caller, shard, _empty(*(text or b"0" for text in texts)), 0.0)
        for shard, texts in zip(shards, replies, strict=True)
    ]


def read_counts(caller: Caller, shards: Sequence[Shard], index: str, bounds: Sequence[Argument]) -> list[int]:
    """The number of ids that an index of each shard has within these bounds."""
    groups = chunked(shards, caller.shards_a_call)
    calls = [Call("lengths", [shard.prefix for shard in some], ["ZCOUNT", index, *bounds], list) for some in groups]
    return [count for counts in raise_first(caller.run_all(calls)) for count in counts]


def read_lengths(caller: Caller, shards: Sequence[Shard], key: str) -> list[int]:
    """The length of one key of each shard: "due", "retries", "behind", "claim" or "morgue"."""
    command, words = {"claim": ("LLEN", 2), "behind": ("HLEN", 1)}.get(key, ("ZCARD", 1))
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
    """The numbers of all of these together; the lag is the highest, of what nobody has paused where there is such."""
    rows = list(parts)
    sums = {name: sum(getattr(row, name) for row in rows) for name in SUMMED}
    lag = max((row.lag for row in rows if not row.paused), default=max((row.lag for row in rows), default=0.0))
    length = sums["length"]
    return QueueMetrics(
        **sums,
        fresh=length - sums["retries"] - sums["blocked"],
        due=length - sums["scheduled"] - sums["blocked"],
        lag=lag,
        blocked_since=min((row.blocked_since for row in rows if row.blocked_since is not None), default=None),
    )


def _empty(*counters: bytes) -> list[Any]:
    """The row of stats.lua of a shard that holds nothing."""
    return [*[0] * 6, b"", *counters[:-1], b"", b"0", b"0", 0, *(b"", 0, 0, 0, b""), counters[-1], *(b"", 0, b"", b"")]


def _row(caller: Caller, shard: Shard, row: list[Any], now: float) -> ShardMetrics:
    found: list[Unreadable] = []
    if not row or isinstance(row[0], bytes):  # names of keys of other types
        found = [of_another_type(f"{shard.prefix}{key.decode()}") for key in row]
        row = _empty(*[b"0"] * len(COUNTERS))
    *row, unsent_us, dependent, dependent_since, fires_at = row
    *row, paused, at_rest, held, blocked, blocked_since, superseded = row
    *counts, oldest, processed, failed, pushed, merged, owner, rest, epoch, scheduled = row
    texts = zip(COUNTERS, (processed, failed, pushed, merged, superseded), strict=True)
    *counters, superseded = [number_in(found, f"{shard.prefix}meta", name, text) for name, text in texts]
    due_in = bounded(oldest) - now if oldest else None
    values: list[Any] = [
        *map(int, counts),
        due_in,
        *counters,
        owner[:LONGEST_NAME].decode("utf-8", "backslashreplace") or None,
        float(rest),
        number_in(found, f"{shard.prefix}owner", "epoch", epoch),
        int(scheduled),
        parse_pause(found, quoted(f"{shard.prefix}paused"), paused),
        bool(at_rest),
        int(held),
        int(blocked),
        _time(blocked_since),
        superseded,
        bounded(unsent_us) / 1e6 if unsent_us else None,
        int(dependent),
        _time(dependent_since),
        _time(fires_at),
        shard.generation,
    ]
    caller.met.tell(shard.prefix, found, SHARD_KEPT)
    return ShardMetrics(shard.queue, shard.index, *values)  # the script's order is that of the fields


def _time(text: bytes) -> float | None:
    return bounded(text) if text else None
