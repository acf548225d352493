"""A shard of a queue: for each script that nodes run a method that makes its call. For push see push.py."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any, Final, Literal, NamedTuple

from lowkiq import clock
from lowkiq.job import KEPT_BYTES
from lowkiq.queue import keys
from lowkiq.queue.call import Argument, Call
from lowkiq.queue.claims import Claim, Spoiled, due_in, parse_claim
from lowkiq.queue.keys import Layout
from lowkiq.shared_page import DeadNode

#: Jobs in one claim.
MAX_CLAIM = 1_000
#: Payloads after which a claim is full (its last job may exceed that), and bytes (its last payload may).
MAX_CLAIM_PAYLOADS = 4_000
MAX_CLAIM_BYTES = 1 << 20

#: Each time that a node asks for a lease has a number, behind those of an earlier process of the same name: what comes
#: after it has asked again is late.
_asked: Final = count(int(clock.real() * 1e6))

#: Parked ids that are looked at in one script.
PARKED: Final = 200

#: Outcomes of renewing a lease. On top of one that was kept come CANCELS, when somebody has cancelled jobs of it,
#: PAUSED, when somebody has paused it and its owner has not said yet that it rests, LETTERS, when it has some,
#: WAITS, when jobs of it wait for others, RECURS, when some recur, and AWAY, when others still run jobs of it.
LOST, KEPT, WANTED, CANCELS, PAUSED, LETTERS, WAITS, RECURS, AWAY = 0, 1, 2, 4, 8, 16, 32, 64, 128

Rest = Literal["keep", "ack", "release"]
#: Fates of a job that is not tried again: its oldest payload goes to the morgue, and the others start anew; all
#: payloads that were handed over go there; all that there is of it waits for a person; or its oldest payload is gone.
Fate = Literal["bury", "bury_all", "block", "discard"]


class Owned(NamedTuple):
    """The lease of a shard was acquired."""

    epoch: str
    #: Seconds until the oldest job is due (negative: overdue), None when nothing is queued.
    due_in: float | None
    restored: int
    buried: int
    #: What follows from jobs that are done waits to be sent (letters.py).
    has_letters: bool = False
    #: Something is parked, and may be so in vain (`look_at_parked`).
    has_parked: bool = False
    #: Earlier owners still run jobs of it (away.lua).
    has_away: bool = False


class Held(NamedTuple):
    """Another node holds the lease."""

    holder: str
    #: Seconds until it ends, unless it is renewed.
    rest: float


class Failure(NamedTuple):
    """A job that failed and is to be tried again."""

    id: str
    retry_count: int
    #: Seconds until the next try.
    delay: float
    error: str


class Snoozed(NamedTuple):
    """A job that comes back later, and has not failed."""

    id: str
    #: Seconds until then.
    delay: float
    #: What it is told of: one that could not start yet has not run, and stays suspected of what it was.
    kind: Literal["snoozed", "limited"] = "snoozed"


class Exhausted(NamedTuple):
    """A job that failed once too often, or is not to be tried again."""

    id: str
    error: str
    fate: Fate = "bury"


class Crashed(NamedTuple):
    """
    A job that has killed the process which it had for itself: it comes back, or is buried at so many such deaths. With
    "crowd" what has died is the fork server, of which others had processes, too.
    """

    id: str
    max_crashes: int
    fate: Literal["crash", "crowd"] = "crash"


class Outcome(NamedTuple):
    """The outcomes of a claim's jobs."""

    acked: Sequence[str] = ()
    released: Sequence[str] = ()
    failed: Sequence[Failure] = ()
    exhausted: Sequence[Exhausted] = ()
    snoozed: Sequence[Snoozed] = ()
    spoiled: Sequence[Spoiled] = ()
    #: Jobs that have not run, as their rate, or a suspect's turn, did not let them.
    limited: Sequence[Snoozed] = ()
    crashed: Sequence[Crashed] = ()
    #: The fate of the jobs not named.
    rest: Rest = "keep"
    #: False if each of those holds one payload.
    has_several: bool = True
    #: Those of the released that had started: a throttle counts from there.
    stopped: Sequence[str] = ()
    #: What follows from jobs that are done: the id that each is of, and its record (letters.py).
    letters: Sequence[tuple[str, bytes]] = ()

    @property
    def is_more_than_acked(self) -> bool:
        """True if it tells of anything else than jobs that are done, which nothing follows from."""
        return any((
            self.released, self.failed, self.exhausted, self.snoozed, self.spoiled, self.limited, self.crashed,
            self.letters,
        ))  # fmt: skip

    def of(self, ids: Collection[str] | None) -> Outcome:
        """What it says of these; of all, if that is None."""
        if ids is None:
            return self
        rows: dict[str, Any] = {
            name: [row for row in getattr(self, name) if (row if isinstance(row, str) else row[0]) in ids]
            for name in OF_IDS
        }
        return self._replace(**rows)


#: The lists of an outcome.
OF_IDS: Final = (
    "acked", "released", "failed", "exhausted", "snoozed", "spoiled", "limited", "stopped", "letters",
)  # fmt: skip


class Settled(NamedTuple):
    """The numbers of jobs that a settle moved."""

    acked: int
    failed: int
    buried: int
    due_in: float | None

    def plus(self, other: Settled) -> Settled:
        """The numbers of both, and what the later one says of what is queued."""
        counts = (self.acked + other.acked, self.failed + other.failed, self.buried + other.buried)
        return Settled(*counts, other.due_in)


class Released(NamedTuple):
    """The number of jobs that a release returned to the queue."""

    restored: int
    due_in: float | None
    #: The node that stands by for the shard: it was told. "": none does, or the lease is kept.
    told: str


class Restored(NamedTuple):
    """The number of jobs that were returned to the queue, or buried, as those who ran them are gone."""

    restored: int
    buried: int
    #: Claims that others still run.
    away: int
    due_in: float | None


class Shard:
    def __init__(self, namespace: str, queue: str, index: int, of: int | Layout) -> None:
        layout = of if isinstance(of, Layout) else Layout.first(of)
        self.namespace = namespace
        self.queue = queue
        self.index = index
        self.generation = layout.generation
        self.prefix = keys.shard(namespace, queue, index, layout.generation)
        self._keys = (self.prefix,)
        #: What this process takes its layout for.
        self.layout = layout.text

    @property
    def part(self) -> str:
        """The name of all shards of its queue's generation."""
        return keys.of_generation(self.queue, self.generation)

    def is_of(self, layout: Layout) -> bool:
        """Returns whether it is of the generation that has that layout."""
        return self.generation == layout.generation and self.index < layout.shards_count

    def is_known(self, layout: Layout) -> bool:
        """Returns whether it is one of a queue that has that layout, be it one that is being moved."""
        return self.is_of(layout) or (layout.is_moving and self.is_of(layout.old))

    def acquire(
        self,
        node: str,
        ttl: float,
        max_crashes: int,
        dead_nodes: Sequence[DeadNode] = (),
        *,
        is_foster: bool = False,
        bell: str = "",
    ) -> Call[Owned | Held]:
        """
        Takes the lease, at once if its holder is one of `dead_nodes`; then only what that ran is suspected of its
        death. A holder learns that a node which is no foster wants the shard. Pushes ring the list `bell`, or else the
        node's doorbell.
        """
        arguments: list[Argument] = [node, self.layout, ttl, max_crashes, int(not is_foster), bell, next(_asked)]
        return Call("acquire", self._keys, [*arguments, *self._dead(dead_nodes)], _acquired)

    def _dead(self, dead_nodes: Sequence[DeadNode]) -> list[str]:
        return [word for dead in dead_nodes for word in (dead.name, dead.ran(self.prefix))]

    def release(
        self,
        node: str,
        epoch: str,
        number: int,
        what: Literal["claim", "lease"],
        ttl: float = 0.0,
        away: Sequence[int] = (),
    ) -> Call[Released]:
        """
        Gives back a claim whose jobs have not run, or with "lease" the shard and all that is claimed of it, but for the
        claims with the numbers `away`: these run on, under leases of their own.
        """
        return Call("release", self._keys, [node, epoch, number, what, *((ttl, *away) if away else ())], _released)

    def restore_away(
        self, node: str, epoch: str, max_crashes: int, dead_nodes: Sequence[DeadNode] = ()
    ) -> Call[Restored]:
        """Returns to the queue what earlier owners ran, where their leases of it have run out, or they are dead."""
        return Call("restore_away", self._keys, [node, epoch, max_crashes, *self._dead(dead_nodes)], _restored)

    def abandon(self, node: str, epoch: str, number: int | str | None = None) -> Call[int]:
        """Notes that the owner leaves while user code still runs, or who has that claim of an earlier hold."""
        return Call("abandon", self._keys, [node, epoch, "" if number is None else number], int)

    def look_at_parked(self, node: str, epoch: str, at: bytes) -> Call[bytes]:
        """Looks whether some of what is parked is to stay so. Gives where to go on, b"0" at first and at the end."""
        return Call("look_at_parked", self._keys, [node, epoch, self.layout, at, PARKED], bytes)

    def isolate(self, node: str, epoch: str, number: int | str, id: str, *, is_alone: bool) -> Call[bool]:
        """Notes that of a claim this suspect runs alone on its node, or has company again. False: the claim is over."""
        return Call("isolate", self._keys, [node, epoch, number, _id(id), int(is_alone)], bool)

    def claim(
        self,
        node: str,
        epoch: str,
        number: int,
        limit: int,
        max_payloads: int,
        load_payload: Callable[[bytes], Any],
        shards: int = 1,
        known: Sequence[int] = (),
        check_id: Callable[[str], object] | None = None,
        *,
        is_closed: bool = False,
    ) -> Call[Claim]:
        """
        Takes at most `limit` due jobs; each of `shards` that are claimed together brings its part of what one claim
        may. Numbers of claims rise within an epoch. `known` are those of the shard's other claims, in hand or not
        answered yet: of one in Redis that is not among them, Unsettled tells the number. With
        `is_closed` no push hands a job over if it finds nothing.
        """
        limits = (min(limit, MAX_CLAIM), max_payloads, MAX_CLAIM_PAYLOADS // shards, MAX_CLAIM_BYTES // shards)
        arguments: list[Argument] = [node, epoch, number, self.layout, *limits, _numbers(known)]
        if is_closed:
            arguments.append("closed")
        return Call("claim", self._keys, arguments, partial(parse_claim, load=load_payload, check_id=check_id))

    def rest(self, node: str, epoch: str, number: int, in_hand: Sequence[int]) -> Call[bool]:
        """
        Says that nothing of the shard starts any more, as it is paused. Claims up to that number that are not in hand
        go back to the queue. False: it is not paused, or there are later claims.
        """
        return Call("rest", self._keys, [node, epoch, number, _numbers(in_hand)], bool)

    def checkpoint(self, node: str, epoch: str, number: int | str, id: str, value: bytes) -> Call[bool]:
        """Keeps what a job of a claim is to be given back when it is run again. False: its run is over."""
        return Call("checkpoint", self._keys, [node, epoch, number, _id(id), value], bool)

    def cancels(self, epoch: str, number: int | str) -> Call[list[str]]:
        """Gives the jobs of a claim that somebody has cancelled."""
        return Call("cancels", self._keys, [epoch, number], _ids)

    def settle(self, node: str, epoch: str, number: int | str, outcome: Outcome) -> Call[Settled]:
        """Ends jobs of a claim."""
        arguments: list[Argument] = [node, epoch, number, outcome.rest, int(outcome.has_several)]
        ended: tuple[Exhausted | Crashed, ...] = (*outcome.exhausted, *outcome.crashed)
        for rows in (
            outcome.spoiled, outcome.acked, outcome.released, outcome.failed, (*outcome.snoozed, *outcome.limited),
            ended,
        ):  # fmt: skip
            arguments.append(len(rows))
            for row in rows:
                if isinstance(row, str):
                    arguments.append(_id(row))
                else:
                    arguments.append(_id(row[0]))
                    arguments += row[1:]
        if outcome.stopped or outcome.letters:
            arguments += (len(outcome.stopped), *map(_id, outcome.stopped))
        for of, record in outcome.letters:
            arguments += (_id(of), record)
        return Call("settle", self._keys, arguments, _settled)

    def finish(self, node: str, epoch: str, number: int, following: int) -> Call[Settled | None]:
        """
        Acks all jobs of a claim, each of one payload, and opens the one with the `following` number: a settle and a
        claim that finds nothing. None, with nothing changed: something is queued, or else needs the two of them.
        """
        return Call("finish", self._keys, [node, epoch, number, following], _finished)


def shards_of(namespace: str, queues: Mapping[str, int | Layout]) -> list[Shard]:
    """The shards of these queues, by their layouts; those that are being moved come first."""
    return [shard for queue, layout in queues.items() for shard in _shards_of(namespace, queue, layout)]


def _shards_of(namespace: str, queue: str, layout: int | Layout) -> list[Shard]:
    if isinstance(layout, int):
        return [Shard(namespace, queue, index, layout) for index in range(layout)]
    known = [layout.old, layout.own] if layout.is_moving else [layout]
    return [Shard(namespace, queue, index, one) for one in known for index in range(one.shards_count)]


def renew(shards: Sequence[Shard], node: str, epochs: Sequence[str], ttl: float) -> Call[list[int]]:
    """
    Renews the leases of several shards; gives for each LOST, KEPT, or WANTED: kept, but another node's part; and
    CANCELS, PAUSED, LETTERS, WAITS, RECURS and AWAY added to the last two.
    """
    return Call("renew", [shard.prefix for shard in shards], [node, ttl, *epochs], list)


def renew_away(claims: Sequence[tuple[Shard, str, int | str]], node: str, ttl: float) -> Call[list[int | bytes]]:
    """
    Renews claims that have outlived that node's hold of their shards, each of an epoch and with its number; gives for
    each LOST or KEPT, and CANCELS added to that; or of one whose shard was moved to which layout.
    """
    named = [word for _, epoch, number in claims for word in (epoch, number)]
    return Call("renew_away", [shard.prefix for shard, _, _ in claims], [node, ttl, *named], list)


def peek(shards: Sequence[Shard], busy: Sequence[bool] | None = None) -> Call[list[float | None]]:
    """
    For each shard the seconds until its oldest job is due (negative: overdue), None when there is nothing. `busy` tells
    of which the caller has claims in hand; of others a claim in Redis is due now.
    """
    return Call("peek", [shard.prefix for shard in shards], list(map(int, busy or ())), _peeked)


def _id(id: str) -> Argument:
    """The bytes of an id as they were claimed: clients would encode any string as UTF-8."""
    return id if id.isascii() else id.encode("utf-8", KEPT_BYTES)


def _ids(reply: list[bytes]) -> list[str]:
    return [id.decode("utf-8", KEPT_BYTES) for id in reply]


def _numbers(claims: Sequence[int]) -> str:
    """Numbers of claims, each with a space before and after it."""
    return f" {' '.join(map(str, claims))} " if claims else ""


def _acquired(reply: list[Any]) -> Owned | Held:
    if reply[0] == b"HELD":
        return Held(reply[1].decode(), float(reply[2]))
    _, epoch, due, now, restored, buried, *has = reply
    return Owned(epoch.decode(), due_in(due, now), int(restored), int(buried), *map(bool, has))


def _released(reply: list[Any]) -> Released:
    restored, due, now, told = reply
    return Released(int(restored), due_in(due, now), told.decode())


def _restored(reply: list[Any]) -> Restored:
    restored, buried, away, due, now = reply
    return Restored(int(restored), int(buried), int(away), due_in(due, now))


def _settled(reply: list[Any]) -> Settled:
    acked, failed, buried, due, now = reply
    return Settled(int(acked), int(failed), int(buried), due_in(due, now))


def _finished(acked: int | None) -> Settled | None:
    return None if acked is None else Settled(int(acked), 0, 0, None)


def _peeked(reply: list[Any]) -> list[float | None]:
    now = float(reply[0])  # once for all: a poll is for thousands
    return [float(due) - now if due else None for due in reply[1:]]
