"""Pauses: of what somebody has stopped, who did, when and why, as Redis keeps it."""

from __future__ import annotations

from typing import Final

import msgspec

from lowkiq.admin.words import printable
from lowkiq.codec import encodable
from lowkiq.queue.unreadable import Unreadable, finite, parsed

#: Characters of a name, and of a reason, that are kept.
MOST_WHO, MOST_WHY = 200, 500


class Pause(msgspec.Struct, frozen=True):
    """A stop by a person, or by a program in the name of one."""

    #: Redis's time.
    since: float
    who: str = ""
    why: str = ""


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
        who_and_why = _TOLD.decode(told)
        return Pause(finite(since), who_and_why.who[:MOST_WHO], who_and_why.why[:MOST_WHY])

    return (parsed(found, key, f"UNLINK {key}", parse) or Pause(0.0)) if text else None


def by_whom(pause: Pause) -> str:
    """Who has paused it, and why."""
    by = f" by {printable(pause.who, 80)}" if pause.who else ""
    return f"{by}: {printable(pause.why, 200)}" if pause.why else by


_TOLD: Final = msgspec.json.Decoder(_Told)
