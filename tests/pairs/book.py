"""Book: where every payload of a history is, by what Redis has said to those who asked. It reads no key of Redis."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

#: A payload and its place among those of its id: the lowest runs first.
Placed = dict[bytes, float]
#: A claim: the prefix of its shard, the epoch of its owner, and its number.
ClaimKey = tuple[str, str, int]
Keep = Literal["", "last", "first"]
#: The place of what is pushed without a score: behind low ones and before high ones.
DEFAULT = 2e9


@dataclass(slots=True)
class Record:
    """All that there is of an id."""

    queued: Placed = field(default_factory=dict)
    claimed: Placed = field(default_factory=dict)
    claim: ClaimKey | None = None
    morgue: Placed = field(default_factory=dict)
    #: What deletions keep, by their names: from where, what, whether it was blocked, and its rules.
    kept: dict[str, tuple[str, Placed, bool, Keep, float | None]] = field(default_factory=dict)
    done: set[bytes] = field(default_factory=set)
    #: What was deleted, cancelled, discarded, or superseded.
    gone: set[bytes] = field(default_factory=set)
    is_blocked: bool = False
    #: The run in hand is not to come back.
    is_cancelled: bool = False
    #: As its last push has asked; "" once nothing of it is queued or runs.
    keep: Keep = ""
    #: Seconds, likewise.
    throttle: float | None = None

    @property
    def is_idle(self) -> bool:
        """True if nothing of it is queued, runs, or is dead."""
        return not (self.queued or self.claimed or self.morgue)


class Book:
    """The records of all ids. Every method says what has happened, and raises AssertionError if it may not happen."""

    def __init__(self, *, is_equal_last: bool) -> None:
        self.records: dict[str, Record] = {}
        self.accepted = 0
        self._is_equal_last = is_equal_last

    def of(self, id: str) -> Record:
        return self.records.setdefault(id, Record())

    # ── producers ───────────────────────────────────────────────────────────────────────────────────────────────────

    def pushed(self, id: str, payload: bytes, score: float | None = None, keep: Keep = "") -> None:
        record = self.of(id)
        self.accepted += 1
        record.done.discard(payload)  # pushed again after it has run, it is to run again
        record.gone.discard(payload)
        record.keep = keep or record.keep
        self._queue(record, {payload: DEFAULT + self.accepted if score is None else score})

    def _queue(self, record: Record, payloads: Mapping[bytes, float]) -> None:
        for payload, place in payloads.items():
            known = record.queued.get(payload)
            pick = max if self._is_equal_last else min
            record.queued[payload] = place if known is None else pick(known, place)
        if record.keep and len(record.queued) > 1:
            best = (max if record.keep == "last" else min)(record.queued.items(), key=_order)
            record.gone |= record.queued.keys() - {best[0]}
            record.queued = dict([best])

    # ── nodes ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def started(self, id: str, payloads: list[bytes], claim: ClaimKey) -> None:
        """A claim has taken these."""
        record = self.of(id)
        assert not record.claimed, f"I4: {id} is in claim {record.claim}, and in {claim}"
        assert not record.is_blocked, f"{id} is blocked, and starts"
        strange = [payload for payload in payloads if payload not in record.queued]
        assert not strange, f"I3: {id} starts {strange}: {_where(record, strange[0])}"
        order = [payload for payload, _ in sorted(record.queued.items(), key=_order)]
        assert payloads == order[: len(payloads)], f"I6: {id} starts {payloads}, its order is {order}"
        record.claimed = {payload: record.queued.pop(payload) for payload in payloads}
        record.claim = claim

    def acked(self, id: str) -> None:
        record = self.of(id)
        record.done |= record.claimed.keys()
        self._over(record)

    def returned(self, id: str) -> None:
        """Whatever was in hand is queued again, unless somebody has cancelled it."""
        record = self.of(id)
        if record.is_cancelled:
            record.gone |= record.claimed.keys()
        else:
            self._queue(record, record.claimed)
        self._over(record)

    def ended(self, id: str, fate: str) -> None:
        """It is not tried again: what becomes of it by its fate (bury, bury_all, block, discard)."""
        record = self.of(id)
        if record.is_cancelled:
            return self.returned(id)
        ends = dict(sorted(record.claimed.items(), key=_order)[: None if fate == "bury_all" else 1])
        rest = {payload: place for payload, place in record.claimed.items() if payload not in ends}
        if fate == "block":
            self._queue(record, record.claimed)
            record.is_blocked = True
        elif fate == "discard":
            record.gone |= ends.keys()
            self._queue(record, rest)
        else:
            self._bury(record, ends)
            self._queue(record, rest)
        self._over(record)
        return None

    def spoiled(self, id: str, payload: bytes) -> None:
        """One payload that can't be read goes to the morgue."""
        record = self.of(id)
        if not record.is_cancelled and payload in record.claimed:
            self._bury(record, {payload: record.claimed.pop(payload)})
            if not record.claimed:
                self._over(record)

    def _bury(self, record: Record, payloads: Placed) -> None:
        pick = max if self._is_equal_last else min
        for payload, place in payloads.items():
            record.morgue[payload] = pick(record.morgue.get(payload, place), place)

    def _over(self, record: Record) -> None:
        record.claimed, record.claim, record.is_cancelled = {}, None, False
        _forget(record)

    # ── people ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def deleted(self, id: str, which: str, undo: str = "") -> None:
        """From the queue or the morgue; kept under that name if it can be undone."""
        record = self.of(id)
        payloads = record.queued if which == "queue" else record.morgue
        if undo and payloads:
            record.kept[undo] = which, payloads, which == "queue" and record.is_blocked, record.keep, record.throttle
        else:
            record.gone |= payloads.keys()
        if which == "queue":
            record.queued, record.is_blocked = {}, False
        else:
            record.morgue = {}
        _forget(record)

    def put_back(self, id: str, undo: str) -> None:
        record = self.of(id)
        if undo not in record.kept:
            return
        which, payloads, is_blocked, keep, throttle = record.kept.pop(undo)
        if which == "queue":
            record.keep, record.throttle = record.keep or keep, record.throttle or throttle
            record.is_blocked = record.is_blocked or is_blocked
            self._queue(record, payloads)
        else:
            self._bury(record, payloads)

    def cancelled(self, id: str) -> None:
        self.deleted(id, "queue")
        record = self.of(id)
        record.is_cancelled = bool(record.claimed)

    def buried(self, id: str) -> None:
        """What is queued of it goes to the morgue."""
        record = self.of(id)
        self._bury(record, record.queued)
        record.queued, record.is_blocked = {}, False
        _forget(record)

    def revived(self, id: str) -> None:
        record = self.of(id)
        self._queue(record, record.morgue)
        record.morgue = {}

    def unblocked(self, id: str, how: str) -> None:
        record = self.of(id)
        if record.is_blocked and how == "skip":
            lowest, _ = min(record.queued.items(), key=_order)
            record.gone.add(lowest)
            del record.queued[lowest]
        record.is_blocked = False
        _forget(record)

    # ── what Redis holds ────────────────────────────────────────────────────────────────────────────────────────────

    def compare(
        self, queued: Mapping[str, Placed], claimed: Mapping[str, Placed], morgue: Mapping[str, Placed]
    ) -> None:
        """I3: each payload is where the book has it, and nowhere else; and in that order."""
        for name, found in (("queued", queued), ("claimed", claimed), ("morgue", morgue)):
            for id in found.keys() | self.records.keys():
                known: Placed = getattr(self.of(id), name)
                there = found.get(id, {})
                lost, strange = known.keys() - there.keys(), there.keys() - known.keys()
                assert not lost, f"I3: lost of {id}, {name}: {sorted(lost)}; there are {sorted(there)}"
                assert not strange, f"I3: {name} of {id}: {sorted(strange)}: {_where(self.of(id), min(strange))}"
                orders = [[payload for payload, _ in sorted(each.items(), key=_order)] for each in (known, there)]
                assert orders[0] == orders[1], f"I6: {name} of {id} is {orders[1]}, not {orders[0]}"


def _forget(record: Record) -> None:
    if not (record.queued or record.claimed):
        record.keep, record.throttle = "", None


def _order(row: tuple[bytes, float]) -> tuple[float, bytes]:
    payload, place = row
    return place, payload


def _where(record: Record, payload: bytes) -> str:
    """Where a payload is, for people."""
    places: dict[str, Iterable[bytes]] = {
        "done": record.done, "gone": record.gone, "queued": record.queued, "claimed": record.claimed,
        "in the morgue": record.morgue,
    }  # fmt: skip
    return " and ".join(name for name, some in places.items() if payload in some) or "never pushed"
