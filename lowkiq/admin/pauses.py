"""Pauses: of what somebody has stopped, who did, when and why, as Redis keeps it."""

from __future__ import annotations

from typing import Final

import msgspec

from lowkiq.admin.words import plural, printable
from lowkiq.codec import encodable
from lowkiq.job import KEPT_BYTES
from lowkiq.queue.unreadable import Unreadable, finite, parsed, quoted

#: Characters of a name, and of a reason, that are kept.
MOST_WHO, MOST_WHY = 200, 500


class Pause(msgspec.Struct, frozen=True):
    """A stop by a person, or by a program in the name of one."""

    #: Redis's time.
    since: float
    who: str = ""
    why: str = ""


class Waits(msgspec.Struct, frozen=True):
    """The jobs after which an id runs."""

    #: How many of them are not done yet, and how many there have been.
    left: int
    total: int
    #: The first of those that are left, each with its queue and id.
    first: tuple[tuple[str, str], ...] = ()
    #: It ends a batch to which more may come.
    is_open: bool = False
    #: Jobs that wait for one another, of which it is one, or waits for one: none of them runs by itself.
    circle: tuple[tuple[str, str], ...] = ()


class Hold(Pause, frozen=True, kw_only=True):
    """An id that is kept from running."""

    id: str
    #: The jobs that it waits for; None: it waits for none.
    waits: Waits | None = None
    #: Somebody holds it, who has to let it go; else it only waits.
    by_person: bool = True


class _Told(msgspec.Struct, frozen=True):
    """The part that people told, as JSON."""

    who: str = ""
    why: str = ""


def pause_text(who: str, why: str) -> bytes:
    """The part that people tell."""
    return msgspec.json.encode(_Told(encodable(who)[:MOST_WHO], encodable(why)[:MOST_WHY]))


def parse_pause(found: list[Unreadable], key: str, text: bytes) -> Pause | None:
    """A pause as it is kept; None if it is none. One that can't be read is one all the same."""

    def parse() -> Pause:
        since, _, told = text.partition(b" ")
        return Pause(finite(since), *_who_and_why(told))

    return (parsed(found, key, f"UNLINK {key}", parse) or Pause(0.0)) if text else None


def parse_hold(found: list[Unreadable], key: str, id: bytes, since: bytes | float, told: bytes | None) -> Hold:
    """An id that is held. One of which nobody can read who holds it is held all the same."""
    remedy = f"HDEL {key} {quoted(id)}"
    who, why = parsed(found, f"{key} {quoted(id)}", remedy, _who_and_why, told or b"{}") or ("", "")
    return Hold(float(since), who, why, id=id.decode("utf-8", KEPT_BYTES))


def waits_text(waits: Waits) -> str:
    jobs = f"{waits.left:,} of {plural(waits.total, 'job')}"
    if waits.is_open:
        return f"waits for the end of a batch to which more may come, and for {jobs}"
    more = f" and {waits.left - len(waits.first):,} more" if waits.left > len(waits.first) else ""
    told = f"waits for {jobs}" + (f": {', '.join(map(_job, waits.first))}{more}" if waits.first else "")
    if waits.circle:
        told += (
            f"; {', '.join(map(_job, waits.circle))} wait for one another: have one of them wait no more, or delete it"
        )
    return told


def _job(job: tuple[str, str]) -> str:
    queue, id = job
    return f"{queue} {printable(id, 40)}"


def by_whom(pause: Pause) -> str:
    """Who has paused it, and why; of an id that waits, for what, too."""
    by = f" by {printable(pause.who, 80)}" if pause.who else ""
    told = f"{by}: {printable(pause.why, 200)}" if pause.why else by
    if not (isinstance(pause, Hold) and pause.waits):
        return told
    return f"{told}; it also {waits_text(pause.waits)}" if pause.by_person else f": it {waits_text(pause.waits)}"


def _who_and_why(told: bytes) -> tuple[str, str]:
    found = _TOLD.decode(told)
    return found.who[:MOST_WHO], found.why[:MOST_WHY]


_TOLD: Final = msgspec.json.Decoder(_Told)
