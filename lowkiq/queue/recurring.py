"""Recurring: the entries of jobs that recur, and the calls that set and fire them (includes/recurring.lua)."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple, Self

import msgspec

from lowkiq.errors import SettingsError, short
from lowkiq.fewer import Fewer
from lowkiq.job import EncodedJob
from lowkiq.queue import keys
from lowkiq.queue.call import Argument, Call, Caller, pairs
from lowkiq.queue.shard import Shard
from lowkiq.recurrence import Rule
from lowkiq.types.codec import Codec

#: Entries that are fired at a time: a few milliseconds of Redis.
MOST: Final = 200


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A job that recurs, as Redis has it."""

    rule: Rule
    #: As its worker dumps it.
    payload: bytes = b""
    #: It is in the code of an application, whose nodes set it as they start; or somebody has set it at run time.
    origin: Literal["code", "api"] = "api"
    #: Who has paused it, why and when (pauses.py); None: it fires.
    paused: bytes | None = None
    #: Whose share its jobs are, as `fair_by` told when it was set.
    tenant: str = ""
    #: A digest of what the code declared of it when that was set last: what people change stays until that changes.
    declared: bytes = b""

    @classmethod
    def parse(cls, text: bytes) -> Self:
        """Raises ValueError for what is none."""
        return msgspec.msgpack.decode(text, type=cls)

    @property
    def text(self) -> bytes:
        """As Redis keeps it."""
        return msgspec.msgpack.encode(self)

    def job(self, id: bytes, at: float, codec: Codec, fewer: Fewer) -> EncodedJob:
        """What is pushed for that time, with all that a push of its worker has. Raises SettingsError: it can't be."""
        payload = dated(codec, self.payload, at) if self.rule.missed == "all" else self.payload
        return EncodedJob(id, payload, at, tenant=self.tenant, fewer=fewer.word_of({}))


class Gone(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is kept of an entry of the code that was taken away, for when it is declared again."""

    declared: bytes = b""
    paused: bytes | None = None
    #: Not as the code has it no more.
    by_people: bool = False


class Living(NamedTuple):
    """A declaration of nodes that live: all that the code of some has of a queue."""

    digest: bytes
    #: When it was heard of first, by Redis's clock.
    since: float
    ids: frozenset[bytes]


class Due(NamedTuple):
    """An entry whose time has come."""

    id: bytes
    #: When that was, as Redis writes it.
    expected: bytes
    text: bytes


class Firing(NamedTuple):
    """What is to fire of a shard."""

    #: Redis's time.
    now: float
    #: When the next one fires; None: none does.
    next_at: float | None
    due: Sequence[Due] = ()


class Fired(NamedTuple):
    """An entry that is to be fired: what is pushed, with scores, and when it is due next."""

    due: Due
    following: float | None
    payloads: Sequence[tuple[bytes, float]]
    #: Whose share they are, and how they run less often (EncodedJob).
    tenant: str = ""
    fewer: str = ""


def recur(shard: Shard, id: bytes, known: bytes, text: bytes, next_at: float | None) -> Call[bool]:
    """Makes an entry that from what is known of it, b"" for nothing. False: it is something else by now."""
    at = "" if next_at is None else f"{next_at:.6f}"
    return Call("recur", [shard.prefix], [shard.layout, id, known, text, at], bool)


def declare(
    namespace: str, queue: str, node: str, digest: bytes, ids: Sequence[bytes], lapse: float
) -> Call[tuple[bool, Sequence[Living]]]:
    """
    Notes that the code of a node has these entries of a queue. Gives whether nobody's had just these before, and all
    declarations of nodes that have said so within `lapse` seconds.
    """
    arguments: list[Argument] = [node, digest, msgspec.msgpack.encode(ids) if ids else b"", f"{lapse:g}"]
    return Call("declare", [keys.declared(namespace, queue)], arguments, _living)


def _living(reply: list[Any]) -> tuple[bool, Sequence[Living]]:
    is_new, *rows = reply
    living = list[Living]()
    for digest, since, ids in zip(rows[::3], rows[1::3], rows[2::3], strict=True):
        with contextlib.suppress(ValueError, msgspec.MsgspecError):  # anybody may write to Redis
            known = msgspec.msgpack.decode(ids, type=list[bytes]) if ids else []
            living.append(Living(digest, float(since), frozenset(known)))
    return bool(is_new), living


def firing(shard: Shard) -> Call[Firing]:
    """Reads what is to fire."""
    return Call("firing", [shard.prefix], [MOST], _firing)


def later(caller: Caller, shard: Shard, rank: int, most: int) -> list[Due]:
    """Entries of a shard, those that fire last first, without the first `rank` of them. Raises RedisError."""
    key = f"{shard.prefix}recurs"
    (found,) = caller.read([("ZRANGE", key, rank, rank + most - 1, "REV", "WITHSCORES")], [])
    ids = [id for id, _ in pairs(found)]
    if not ids:
        return []
    (texts,) = caller.read([("HMGET", f"{shard.prefix}recurring", *ids)], [None] * len(ids))
    return [Due(id, b"%.6f" % float(at), text or b"") for (id, at), text in zip(pairs(found), texts, strict=True)]


def fire(shard: Shard, node: str, epoch: str, entries: Sequence[Fired]) -> Call[Firing]:
    """Fires entries, each once, whoever tries it how often."""
    arguments: list[Argument] = [node, epoch, shard.layout]
    for entry in entries:
        following = "" if entry.following is None else f"{entry.following:.6f}"
        arguments += (entry.due.id, entry.due.expected, following, len(entry.payloads), entry.tenant, entry.fewer)
        for payload, score in entry.payloads:
            arguments += (payload, score)
    return Call("fire", [shard.prefix], arguments, lambda reply: _firing(reply[:2]))


def _firing(reply: list[Any]) -> Firing:
    now, next_at, *rows = reply
    due = [Due(*row) for row in zip(rows[::3], rows[1::3], rows[2::3], strict=True)]
    return Firing(float(now), float(next_at) if next_at else None, due)


def dated(codec: Codec, payload: bytes, at: float) -> bytes:
    """
    A payload that says in `due` for when it is: equal ones would be merged.

    Raises:
        SettingsError: it can't say so.
    """
    loaded = codec.load(payload)
    try:
        dumped = codec.dump(_with_due(loaded, at))
    except (TypeError, ValueError, AttributeError) as error:
        raise SettingsError(
            f'with missed="all" the payload must be a mapping, or a model that has `due`, not {short(loaded)}: each '
            f"run gets its own, with its time in `due` ({error})"
        ) from error
    return dumped if isinstance(dumped, bytes) else dumped.encode()


def _with_due(payload: Any, at: float) -> Any:
    if payload == "":
        return {"due": at}
    if isinstance(payload, msgspec.Struct):
        return msgspec.structs.replace(payload, due=at)
    if dataclasses.is_dataclass(payload) and not isinstance(payload, type):
        return dataclasses.replace(payload, due=at)
    return payload.model_copy(update={"due": at}) if hasattr(payload, "model_copy") else {**payload, "due": at}
