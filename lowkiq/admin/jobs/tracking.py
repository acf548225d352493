"""Tracking: ids of a queue that somebody follows, with what has happened to each since."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from lowkiq.admin.metrics import read_hashes
from lowkiq.errors import Refused
from lowkiq.job import KEPT_BYTES
from lowkiq.queue.call import Argument, Call, Caller, chunked
from lowkiq.queue.homes import act_at
from lowkiq.queue.shard import Shard
from lowkiq.queue.unreadable import Unreadable, finite, quoted

#: Ids of a queue that can be tracked, and commands in a round trip.
MOST_TRACKED: Final = 1_000
AT_ONCE: Final = 1_000
#: Notes of an id that are kept, from its first on, and up to its last (notes.lua).
KEPT: Final = 99
#: What is said of others than these.
NO_NOTE: Final = "it holds what is no transition of an id"
#: Digits of a count that is one.
MOST_DIGITS: Final = 15
_NOTE: Final = re.compile(rb"([a-z_]{1,20}) ([0-9.]{1,30}) ([0-9]{1,4}) (.{0,4096})", re.DOTALL)


class Transition(msgspec.Struct, frozen=True):
    """Something that happened to an id."""

    at: float
    #: pushed, superseded, started, done, failed, snoozed, limited, blocked, retried, skipped, discarded, buried,
    #: revived, deleted, cancelled, released or restored.
    kind: str
    #: The node that did it, if one did.
    node: str = ""
    #: The error of a failure, and the like.
    detail: str = ""


class Tracked(msgspec.Struct, frozen=True):
    """An id that somebody tracks."""

    queue: str
    id: str
    #: Transitions since, and the first and the last of them: of very many, those between are left out.
    count: int
    transitions: list[Transition]


def track(caller: Caller, found: Sequence[tuple[Shard, list[bytes]]], shards: Sequence[Shard], *, on: bool) -> int:
    """
    Tracks ids from now on, or no longer; tells of how many that was new. Raises Refused when there are too many of a
    queue.
    """
    if on:
        new = sum(not is_tracked(caller, shard, id) for shard, ids in found for id in ids)
        there = sum(_lengths(caller, shards))
        if there + new > MOST_TRACKED:
            raise Refused(
                f"{there:,} ids of queue {shards[0].queue} are tracked, {MOST_TRACKED:,} can be: untrack some first"
            )
    words: list[Argument] = [int(on), MOST_TRACKED]
    return sum(
        act_at(caller, shard, Call("track", [shard.prefix], [shard.layout, *words, *ids], int)) for shard, ids in found
    )


def read_tracked(caller: Caller, shards: Sequence[Shard], limit: int = MOST_TRACKED) -> list[Tracked]:
    """The tracked ids of a queue, each with its history."""
    lengths = _lengths(caller, shards)
    some = [shard for shard, length in zip(shards, lengths, strict=True) if length] if limit > 0 else []
    rows = read_hashes(caller, [f"{shard.prefix}tracks" for shard in some], max(limit, 1))
    found = [(shard, id, count) for shard, row in zip(some, rows, strict=True) for id, count in row.items()][:limit]
    histories = [read_transitions(caller, shard, id) for shard, id, _ in found]
    return [
        Tracked(shard.queue, id.decode("utf-8", KEPT_BYTES), _count(count, history), history)
        for (shard, id, count), history in zip(found, histories, strict=True)
    ]


def is_tracked(caller: Caller, shard: Shard, id: bytes) -> bool:
    return bool(caller.read([("HEXISTS", f"{shard.prefix}tracks", id)], 0)[0])


def read_transitions(caller: Caller, shard: Shard, id: bytes) -> list[Transition]:
    """The first and the last transitions of an id since it is tracked, the earliest first."""
    names = [shard.prefix.encode() + name + id for name in (b"tracked:", b"tracked_last:")]
    pages = caller.read([("LRANGE", name, 0, KEPT - 1) for name in names], [])
    found: list[Transition] = []
    for name, page in zip(names, pages, strict=True):
        notes = list(map(parse_note, page))
        found += filter(None, notes)
        is_junk = None in notes
        caller.met.tell(quoted(name), [Unreadable(quoted(name), NO_NOTE, f"UNLINK {quoted(name)}")] if is_junk else [])
    return found


def parse_note(text: bytes) -> Transition | None:
    """A transition as notes.lua writes it; None for what is none: anybody may have written it."""
    match = _NOTE.match(text)
    if match is None:
        return None
    kind, at, length, rest = match.groups()
    node, detail = rest[: int(length)], rest[int(length) :]
    try:
        return Transition(finite(at), kind.decode(), node.decode("utf-8", "replace"), detail.decode("utf-8", "replace"))
    except ValueError:
        return None


def _lengths(caller: Caller, shards: Sequence[Shard]) -> list[int]:
    found: list[Any] = []
    for some in chunked(shards, AT_ONCE):
        found += caller.read([("HLEN", f"{shard.prefix}tracks") for shard in some], 0)
    return [int(length) for length in found]


def _count(text: bytes, history: Sequence[Transition]) -> int:
    return int(text) if text.isdigit() and len(text) <= MOST_DIGITS else len(history)
