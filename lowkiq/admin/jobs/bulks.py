"""
Bulks: actions on all jobs that match, with their progress, in Redis: any process can show and stop what another runs.

They say nothing of jobs' own state: a bulk whose process dies has done what it has done, and can be started again.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from functools import partial
from typing import Literal

import msgspec

from lowkiq.admin.beats.health import Count, Seconds
from lowkiq.admin.jobs.actions import check_action
from lowkiq.admin.jobs.deeds import kind_of
from lowkiq.admin.jobs.search import Match
from lowkiq.admin.past.incidents import NewIncident, end, tolerant, try_to_note
from lowkiq.admin.words import printable
from lowkiq.queue import keys
from lowkiq.queue.call import Caller, redis_time

#: Seconds for which an ended bulk is shown, and how many are listed.
KEPT_SECONDS, LISTED = 86_400, 50
#: Bytes of one that are read: a pattern and a group of errors have room.
MOST_BYTES = 1 << 20
#: Seconds without progress after which its process must be gone.
INTERRUPTED_AFTER = 30.0


class Bulk(msgspec.Struct, frozen=True):
    """An action on all that match, and its progress."""

    id: str
    queue: str
    action: str
    match: Match
    #: Jobs that matched when it was asked for; those met so far; and those of them that were moved or deleted.
    total: Count
    seen: Count
    moved: Count
    #: interrupted: its process is gone.
    state: Literal["running", "stopping", "done", "stopped", "failed", "interrupted"]
    started_at: Seconds
    updated_at: Seconds
    error: str | None = None
    #: Why somebody wants it, for people; of what is held it is kept.
    why: str = ""

    @property
    def is_over(self) -> bool:
        """True when nothing more will happen."""
        return self.state not in {"running", "stopping"}


def new_bulk(caller: Caller, namespace: str, queue: str, action: str, match: Match, total: int, why: str = "") -> Bulk:
    """A bulk that is about to run."""
    now = redis_time(caller)
    bulk = Bulk(secrets.token_hex(8), queue, action, match, total, 0, 0, "running", now, now, why=why)
    save(caller, namespace, bulk)
    listed = keys.bulks(namespace)
    caller.commands([("ZADD", listed, now, bulk.id), ("ZREMRANGEBYRANK", listed, 0, -1 - LISTED)])
    return bulk


def save(caller: Caller, namespace: str, bulk: Bulk) -> Bulk:
    """Writes its progress, as of now; returns what was written."""
    bulk = msgspec.structs.replace(bulk, updated_at=redis_time(caller))
    caller.command("SET", keys.bulk(namespace, bulk.id), msgspec.json.encode(bulk), "EX", KEPT_SECONDS)
    return bulk


def ask_to_stop(caller: Caller, namespace: str, id: str) -> bool:
    """False when there is no such bulk, or it is over."""
    bulk = read_bulk(caller, namespace, id)
    if bulk is None or bulk.is_over:
        return False
    caller.command("SET", keys.bulk_stop(namespace, id), 1, "EX", KEPT_SECONDS)
    return True


def is_to_stop(caller: Caller, namespace: str, id: str) -> bool:
    """True when somebody has asked for it."""
    return bool(caller.command("EXISTS", keys.bulk_stop(namespace, id)))


def read_bulk(caller: Caller, namespace: str, id: str) -> Bulk | None:
    """None when there is no such bulk, or no longer."""
    return next(iter(_read(caller, namespace, [id.encode("utf-8", "replace")])), None)


def read_bulks(caller: Caller, namespace: str) -> list[Bulk]:
    """The last ones, the newest first."""
    key = keys.bulks(namespace)
    (ids,) = caller.read([("ZREVRANGE", key, 0, LISTED - 1)], [])
    return _read(caller, namespace, ids)


def _read(caller: Caller, namespace: str, ids: Sequence[bytes]) -> list[Bulk]:
    now = redis_time(caller)
    texts = caller.read([("GETRANGE", _key_of(namespace, id), 0, MOST_BYTES) for id in ids], b"")
    stops = caller.commands([("EXISTS", _key_of(namespace, id) + b":stop") for id in ids])
    bulks = [
        caller.met.whole(_key_of(namespace, id), partial(_parse, id), text) for id, text in zip(ids, texts, strict=True)
    ]
    return [_as_of(bulk, now, bool(stop)) for bulk, stop in zip(bulks, stops, strict=True) if bulk]


def _key_of(namespace: str, id: bytes) -> bytes:
    return keys.bulk(namespace, "").encode() + id


def _parse(id: bytes, text: bytes) -> Bulk:
    bulk = msgspec.json.decode(text, type=Bulk)
    if bulk.id.encode() != id:
        raise ValueError("it is of another bulk")
    check_action(bulk.action, bulk.match.view)
    return bulk


def _as_of(bulk: Bulk, now: float, stop: bool) -> Bulk:
    if bulk.is_over:
        return bulk
    if now - bulk.updated_at > INTERRUPTED_AFTER:
        return msgspec.structs.replace(bulk, state="interrupted")
    return msgspec.structs.replace(bulk, state="stopping") if stop else bulk


def note_begin(caller: Caller, namespace: str, bulk: Bulk, who: str) -> None:
    """Keeps among the incidents that it has begun."""
    verb = kind_of(bulk.action).capitalize()
    says = f"{verb}: all that match, {bulk.total:,} jobs of {printable(bulk.queue, 60)} ({bulk.match.view})"
    new = NewIncident(
        key=f"bulk:{bulk.id}", kind="bulk action", severity="note", says=says, queue=bulk.queue, who=who, lasts=True
    )
    try_to_note(caller, namespace, new)


def note_end(caller: Caller, namespace: str, bulk: Bulk) -> None:
    with tolerant():
        end(caller, namespace, {f"bulk:{bulk.id}": None})
