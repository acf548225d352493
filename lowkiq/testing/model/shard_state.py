"""ShardState: what a shard holds, be it in Redis or in the model. Times and scores are microseconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from lowkiq.telemetry.texts import MARK

SECOND = 1_000_000
COUNTERS = ("pushed", "merged", "processed", "failed", "superseded")

Payloads = dict[bytes, int]
Tags = tuple[str, ...]
#: Contexts that an id keeps, in these histories.
MOST_CONTEXTS = 2
#: Id, payloads, due time and retry_count of a claimed job; of a suspect its deaths in a crowd, else 0; and what an
#: earlier run has kept, and its tags.
TakenJob = tuple[str, list[tuple[bytes, int]], int, int, int, bytes | None, Tags]


#: When a blocked job is due.
NEVER = round(1e30 * SECOND)


class Asked(NamedTuple):
    """How a push asks for fewer runs. None, or "": it does not speak of that."""

    wait: int | None = None
    at_most: int = 0
    #: 0 ends what an earlier push has asked for; so does "all".
    throttle: int | None = None
    keep: str = ""

    @property
    def keeps_one(self) -> bool:
        """True if only one of its payloads is kept."""
        return self.keep in ONE


#: Rules by which one payload is kept.
ONE = ("last", "first")


def all_asked(rows: Sequence[object], asked: Sequence[Asked]) -> list[Asked]:
    """For each row how it asks for fewer runs; those after the last that does ask for nothing."""
    return [*asked, *[Asked()] * (len(rows) - len(asked))]


#: The throttle of an id, if it has one, and "last", "first" or "lowest", or "".
FewerRule = tuple["int | None", str]


class Delay(int):
    """The time from a push until its job is due."""


def merge(into: Payloads, payloads: Payloads, keep: str = "") -> None:
    """Of equal payloads the last word counts: they have the higher score, or by the rule "lowest" the lower one."""
    which = min if keep == "lowest" else max
    for payload, score in payloads.items():
        into[payload] = which(score, into.get(payload, score))


def joined(tags: Tags, more: Tags) -> Tags:
    """Those that are there come first; then the latest contexts, which begin with a mark."""
    words = [tag for tag in tags + more if tag[0] != MARK]
    latest = [tag for some in (more, tags) for tag in reversed(some) if tag[0] == MARK]
    return (*dict.fromkeys(words), *reversed(list(dict.fromkeys(latest))[:MOST_CONTEXTS]))


def lowest_first(payloads: Payloads) -> list[tuple[bytes, int]]:
    return sorted(payloads.items(), key=lambda item: (item[1], item[0]))


@dataclass
class Entry:
    payloads: Payloads
    due: int
    retry_count: int = -1
    #: It is parked: queued behind a run of its own id.
    waits: bool = False
    tags: Tags = ()
    #: Since when it waits for a person.
    blocked: int | None = None


@dataclass
class Grave:
    payloads: Payloads
    error: str
    tags: Tags = ()
    #: The lowest score of payloads that were left when some died.
    newer: int | None = None
    #: When some died last. (Histories of Redis's scripts don't compare it.)
    at: int = field(default=0, compare=False)


class Kept(NamedTuple):
    """A deleted job that can be put back, with what was known of it; of one that ran on, only what is of the queue."""

    #: 'queue' or 'morgue'.
    where: str
    payloads: tuple[tuple[bytes, int], ...]
    due: int = 0
    retry_count: int = -1
    error: str | None = None
    crashes: int | None = None
    crowds: int | None = None
    checkpoint: tuple[bytes, bytes] | None = None
    tags: Tags = ()
    tenant: str | None = None
    rule: FewerRule | None = None


#: The number of an owner's claim; of one that has outlived its owner's hold the epoch under which it was made, too.
ClaimName = int | tuple[int, int]


@dataclass
class Away:
    """The lease of a claim that has outlived its owner's hold of the shard."""

    node: str
    until: int
    ttl: int
    is_left: bool = False
    #: The suspect of it that runs alone on its node.
    alone: str = ""


@dataclass
class ShardState:
    """All that a shard holds, and which bells beside it say that their threads listen."""

    queued: dict[str, Entry] = field(default_factory=dict)
    #: Claims in hand by their numbers; none is empty.
    claims: dict[ClaimName, dict[str, Entry]] = field(default_factory=dict)
    #: Those of them that are away.
    away: dict[tuple[int, int], Away] = field(default_factory=dict)
    morgue: dict[str, Grave] = field(default_factory=dict)
    crashes: dict[str, int] = field(default_factory=dict)
    crowds: dict[str, int] = field(default_factory=dict)
    #: Those that deaths have buried, and nobody was told of yet.
    untold: list[str] = field(default_factory=list)
    errors: dict[str, str] = field(default_factory=dict)
    #: The epoch and the number of the claim in which an id is cancelled.
    cancels: dict[str, tuple[int, int]] = field(default_factory=dict)
    #: The number of a sender's last call that was applied, and how many were new of its jobs, or taken; None: all.
    senders: dict[str, tuple[int, int | None]] = field(default_factory=dict)
    #: The lowest payload of the run that has kept it, and what it has kept.
    checkpoints: dict[str, tuple[bytes, bytes]] = field(default_factory=dict)
    #: What can be undone: by the name of the deletion, and id.
    kept: dict[tuple[str, str], Kept] = field(default_factory=dict)
    #: Whose share an id is, while it is anywhere (lanes.lua).
    tenants: dict[str, str] = field(default_factory=dict)
    #: When ids are due by the lanes of their tenants. They are hints, and the model knows none.
    lanes: dict[str, dict[str, int]] = field(default_factory=dict, compare=False)
    layout: str | None = None
    last_score: int = 0
    #: Since the clock was set back: the latest time for which a job was queued.
    seen: int | None = None
    counters: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTERS, 0))
    #: The owner; a number of 0 stands for none, as the scripts have it.
    node: str | None = None
    epoch: int = 0
    #: By how much epochs are ahead of the clock, and since when (epochs.lua).
    lead: tuple[int, int] = (0, 0)
    until: int = 0
    ttl: int = 0
    claim_number: int = 0
    #: A claim's number and the suspect of it that runs alone on its node.
    alone: tuple[int, str] | None = None
    is_abandoned: bool = False
    wanted: str | None = None
    #: The list that rings the owner, the time of which it knows that something is due then, and its open claim.
    bell: str | None = None
    waiting: float | None = None
    open: tuple[int, int] | None = None
    #: Since when it is paused, and what people told of that; and the epoch of the owner that starts nothing more.
    paused: tuple[int, bytes] | None = None
    rests: int | None = None
    #: Ids that are held: since when, and who and why.
    held: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    #: How ids that are queued or claimed run less often; until when some do not start again; and of those that are
    #: debounced when that has them due, and the latest time for it. (Of an id that was moved since it may be left.)
    rules: dict[str, FewerRule] = field(default_factory=dict)
    spaced: dict[str, int] = field(default_factory=dict)
    debounced: dict[str, tuple[int, int]] = field(default_factory=dict)
    #: The bells at which somebody listens.
    idle: set[str] = field(default_factory=set)

    @property
    def own(self) -> list[int]:
        """The numbers of the owner's claims."""
        return sorted(name for name in self.claims if isinstance(name, int))

    @property
    def claimed(self) -> dict[str, Entry]:
        """The jobs of all claims."""
        return {id: entry for claim in self.claims.values() for id, entry in claim.items()}

    def due_by(self, now: int) -> list[str]:
        """Ids that a claim may meet, the oldest first."""
        return sorted(
            (id for id, entry in self.queued.items() if entry.due <= now and not entry.waits),
            key=lambda one: (self.queued[one].due, one),
        )

    @property
    def cancelled(self) -> set[tuple[ClaimName, str]]:
        """The claims and ids of the runs that are cancelled. A mark of any other run counts for nothing."""
        return {
            (name, id)
            for name, claim in self.claims.items()
            for id in claim
            if self.cancels.get(id) == (name if isinstance(name, tuple) else (self.epoch, name))
        }
