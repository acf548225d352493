"""Recurring jobs as people see and change them: what recurs, when it ran last and runs next, who has paused it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from lowkiq.admin.past.incidents import note_deed
from lowkiq.admin.pauses import Pause, parse_pause, pause_text
from lowkiq.admin.words import printable
from lowkiq.errors import LowkiqError
from lowkiq.job import KEPT_BYTES
from lowkiq.queue import keys
from lowkiq.queue.call import Caller, grouped, pairs, redis_time
from lowkiq.queue.homes import act_at, home_of
from lowkiq.queue.recurring import Entry, Gone, recur
from lowkiq.queue.shard import Shard
from lowkiq.queue.unreadable import Unreadable, parsed, quoted
from lowkiq.recurrence import Rule

#: Entries of a shard that are read at a time.
AT_ONCE: Final = 500
#: Tries to change an entry that others change, too.
TRIES: Final = 10

#: What people ask of an entry.
Action = Literal["pause", "resume", "remove"]
Change = Callable[[Entry | None], Entry | None]


class RecurringJob(msgspec.Struct, frozen=True):
    """A job that recurs."""

    queue: str
    id: str
    rule: Rule
    #: "code" if an application declares it, "api" if somebody has set it.
    origin: Literal["code", "api"]
    #: When it fires next; None: it is paused. Unix times by Redis's clock, as is the next one.
    next_at: float | None = None
    #: For when it was fired last; None: it was not yet.
    last_at: float | None = None
    paused: Pause | None = None
    #: As its worker dumps it.
    payload: bytes = b""


def read_entry(caller: Caller, shard: Shard, id: bytes) -> tuple[bytes, Entry | None]:
    """An entry of a shard as it is kept, and what it is; b"" and None if there is none. Raises LowkiqError."""
    (text,) = caller.read([("HGET", f"{shard.prefix}recurring", id)], None)
    try:
        return text or b"", Entry.parse(text) if text else None
    except msgspec.MsgspecError as error:
        where = f"{quoted(f'{shard.prefix}recurring')} {quoted(id)}"
        raise LowkiqError(f"{where} is no entry ({error}). Remove it: HDEL {where}") from error


def change_entry(
    caller: Caller, shards: Sequence[Shard], id: bytes, change: Change, *, by_people: bool = True
) -> tuple[Entry | None, Entry | None]:
    """
    Makes of an entry what `change` makes of it, None for none; if others change it meanwhile, of what that is then.
    What people take away of the code's is remembered, and so is their pause of what the code takes away. Raises
    BeingResharded, LowkiqError.

    Returns:
        what it was, and what it is.
    """
    for _ in range(TRIES):
        home = home_of(caller, shards, id)
        text, known = read_entry(caller, home, id)
        made = change(known)
        if made == known and known is not None:
            return known, made
        if known and not made and known.declared and (by_people or known.paused):
            gone = Gone(known.declared, None if by_people else known.paused, by_people)
            key = keys.declared(home.namespace, home.queue)
            caller.command("HSET", key, b"-" + id, msgspec.msgpack.encode(gone))
        # That there is none the script confirms, too: it may be on its way.
        new, next_at = made.text if made else b"", None
        if made and made.paused is None:
            next_at = made.rule.after(redis_time(caller))
        if act_at(caller, home, recur(home, id, text, new, next_at)):
            return known, made
    raise LowkiqError(f"{quoted(id)} is being changed by others all the time: try again")


def set_by(rule: Rule, payload: bytes, origin: Any, tenant: str = "") -> Change:
    """Has an entry be that, paused if it was."""

    def change(known: Entry | None) -> Entry:
        paused, declared = (known.paused, known.declared) if known else (None, b"")
        return Entry(rule, payload, origin, paused, tenant, declared)

    return change


def asked_by(action: Action, now: float, who: str = "", why: str = "") -> Change:
    """What somebody asks of an entry at that time (Redis's)."""

    def change(known: Entry | None) -> Entry | None:
        if known is None or action == "remove":
            return None
        if action == "resume":
            return msgspec.structs.replace(known, paused=None)
        return known if known.paused else msgspec.structs.replace(known, paused=b"%.6f " % now + pause_text(who, why))

    return change


def act(caller: Caller, shards: Sequence[Shard], id: bytes, action: Action, who: str = "", why: str = "") -> bool:
    """Does what somebody asks of an entry, and notes it. False: there is none, or nothing to change."""
    before, now = change_entry(caller, shards, id, asked_by(action, redis_time(caller), who, why))
    if before == now:
        return False
    note_change(caller, shards[0].namespace, shards[0].queue, id, f"was {action}d", who)
    return True


def note_change(caller: Caller, namespace: str, queue: str, id: bytes, what: str, who: str) -> None:
    """Notes what somebody did to a recurring job of a queue."""
    name = printable(id.decode("utf-8", "replace"), 100)
    says = f"Recurring job {name} of {printable(queue, 60)} {what}"
    note_deed(caller, namespace, queue, "recurring", says, who)


def read_all(caller: Caller, shards: Iterable[Shard]) -> Iterator[RecurringJob]:
    """The jobs that recur in these shards. What can't be read is told of, and left out."""
    for shard, _ in _sizes(caller, shards):
        cursor = b"0"
        while True:
            scan = ("HSCAN", f"{shard.prefix}recurring", cursor, "COUNT", AT_ONCE)
            ((cursor, rows),) = caller.read([scan], (b"0", []))
            entries = rows.items() if isinstance(rows, Mapping) else pairs(rows)
            yield from _jobs(caller, shard, dict(entries))
            if int(cursor) == 0:
                break


def read_soonest(caller: Caller, shards: Iterable[Shard], limit: int) -> tuple[list[RecurringJob], int]:
    """
    The jobs of these shards that fire next, the soonest first, at most so many, and how many recur in all. Those that
    are paused come last, and only where all are shown.
    """
    sizes = _sizes(caller, shards)
    count = sum(size for _, size in sizes)
    if count <= limit:
        return in_order(read_all(caller, [shard for shard, _ in sizes])), count
    heads = [("ZRANGE", f"{shard.prefix}recurs", 0, limit - 1, "WITHSCORES") for shard, _ in sizes]
    found = [
        (float(at), shard, id)
        for (shard, _), head in zip(sizes, caller.read(heads, []), strict=True)
        for id, at in pairs(head)
    ]
    wanted = grouped((shard, id) for _, shard, id in sorted(found, key=lambda row: row[0])[:limit])
    jobs = list[RecurringJob]()
    for shard, ids in wanted.items():
        (texts,) = caller.read([("HMGET", f"{shard.prefix}recurring", *ids)], [None] * len(ids))
        jobs += _jobs(caller, shard, {id: text for id, text in zip(ids, texts, strict=True) if text})
    return in_order(jobs), count


def in_order(jobs: Iterable[RecurringJob]) -> list[RecurringJob]:
    """Those that fire next first, and those that are paused last."""
    return sorted(jobs, key=lambda job: (job.next_at is None, job.next_at or 0.0, job.queue, job.id))


def _sizes(caller: Caller, shards: Iterable[Shard]) -> list[tuple[Shard, int]]:
    """The shards in which anything recurs, and how many jobs do."""
    every = list(shards)
    counts = caller.read([("HLEN", f"{shard.prefix}recurring") for shard in every], 0)
    return [(shard, int(count)) for shard, count in zip(every, counts, strict=True) if count]


def _jobs(caller: Caller, shard: Shard, entries: Mapping[bytes, bytes]) -> Iterator[RecurringJob]:
    if not entries:
        return
    ids = list(entries)
    next_ats, last_ats = caller.read(
        [("ZMSCORE", f"{shard.prefix}recurs", *ids), ("HMGET", f"{shard.prefix}recur_last", *ids)], [None] * len(ids)
    )
    key, met = f"{shard.prefix}recurring", list[Unreadable]()
    for id, next_at, last_at in zip(ids, next_ats, last_ats, strict=True):
        entry = parsed(met, f"{quoted(key)} {quoted(id)}", f"HDEL {quoted(key)} {quoted(id)}", Entry.parse, entries[id])
        if entry:
            yield RecurringJob(
                shard.queue,
                id.decode("utf-8", KEPT_BYTES),
                entry.rule,
                entry.origin,
                None if next_at is None else float(next_at),
                None if last_at is None else float(last_at),
                parse_pause(met, f"{quoted(key)} {quoted(id)}", entry.paused) if entry.paused else None,
                entry.payload,
            )
    caller.met.tell(key, met)
