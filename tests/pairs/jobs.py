"""What a history speaks of: jobs that are pushed, jobs in hand, claims and leases; and how they are told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from lowkiq.after import word_of
from lowkiq.errors import LowkiqError
from lowkiq.job import EncodedJob
from lowkiq.queue.shard import Held, Outcome, Owned, Shard
from tests.pairs.book import ClaimKey, Keep

QUEUE, SHARDS = "q", 2
#: Both shards have some.
IDS = ("a", "b", "c", "d", "e")
SECOND = 1_000_000


@dataclass(slots=True)
class Row:
    """A job that is pushed."""

    id: str
    payload: bytes
    score: float | None = None
    perform_in: str = ""
    tags: str = ""
    tenant: str = ""
    #: Seconds of a debounce (wait, at most), and of a throttle.
    debounce: tuple[float, float] | None = None
    throttle: float | None = None
    keep: Keep = ""
    #: Others of the queue.
    after: tuple[str, ...] = ()
    #: Something of its id was queued, or ran, before.
    was_queued: bool = False
    was_claimed: bool = False

    @property
    def fewer(self) -> str:
        """Its word for fewer.lua."""
        if self.debounce is None and self.throttle is None and not self.keep:
            return ""
        throttle = "" if self.throttle is None else f"{self.throttle:.6f}"
        debounce = ("", "") if self.debounce is None else (f"{each:.6f}" for each in self.debounce)
        return ":".join((*debounce, throttle, self.keep))

    @property
    def job(self) -> EncodedJob:
        score = "" if self.score is None else self.score
        after = word_of(f"{QUEUE} {SHARDS} {id}" for id in self.after) if self.after else ""
        words = (score, self.perform_in, self.tags, self.tenant, self.fewer, after)
        return EncodedJob(self.id.encode(), self.payload, *words)


@dataclass(slots=True)
class Taken:
    """A job in hand."""

    payloads: list[bytes]
    retry_count: int
    perform_in: float
    checkpoint: bytes | None
    tags: tuple[str, ...]
    is_suspect: bool
    #: Since when, by Redis's clock, in microseconds.
    since: int


@dataclass(slots=True)
class Hand:
    """A claim in hand, or what a reshard has moved of it to one shard."""

    lease: Lease
    #: A text where a reshard has moved it.
    number: Any
    jobs: dict[str, Taken] = field(default_factory=dict)
    #: The claim, as it was made.
    key: ClaimKey = ("", "", 0)
    has_several: bool = False

    def __post_init__(self) -> None:
        if not self.key[0]:
            self.key = self.lease.shard.prefix, self.lease.epoch, int(self.number)


@dataclass(slots=True)
class Lease:
    """A node's hold of a shard."""

    shard: Shard
    node: str
    epoch: str
    number: int = 0
    hands: dict[int, Hand] = field(default_factory=dict)
    #: It is somebody else's by now, and whoever had it may not know.
    is_lost: bool = False

    @property
    def owner(self) -> tuple[str, str]:
        return self.node, self.epoch


def fates(outcome: Outcome) -> Iterator[tuple[str, str, bytes]]:
    """What becomes of jobs, in the order in which the script does it."""
    yield from ((row.id, "spoiled", row.payload) for row in outcome.spoiled)
    yield from ((id, "acked", b"") for id in outcome.acked)
    yield from ((id, "released", b"") for id in outcome.released)
    yield from ((row.id, "failed", b"") for row in outcome.failed)
    yield from ((row.id, row.kind, b"") for row in (*outcome.snoozed, *outcome.limited))
    yield from ((row.id, row.fate, b"") for row in outcome.exhausted)


def told(result: Any) -> str:
    match result:
        case Owned():
            return f"epoch {result.epoch}, {result.restored} back, {result.buried} buried"
        case Held():
            return f"held by {result.holder}"
        case LowkiqError():
            return f"{type(result).__name__} {result}"[:100]
    return str(result)


def texts(payloads: Iterable[bytes]) -> str:
    return ",".join(payload.decode(errors="replace") for payload in payloads)


def shown(row: Row) -> str:
    names = ("score", "perform_in", "tags", "tenant", "fewer", "after")
    more = [f" {name} {value}" for name in names if (value := getattr(row, name)) not in {None, "", ()}]
    return f"{row.id}={row.payload.decode(errors='replace')}{''.join(more)}"


def spelt(outcome: Outcome) -> str:
    parts = []
    for name, value in outcome._asdict().items():
        if isinstance(value, list) and value:
            parts.append(f"{name} {' '.join(one if isinstance(one, str) else str(tuple(one)) for one in value)}")
    return "; ".join(parts) + ("" if outcome.rest == "keep" else f"; rest {outcome.rest}")
