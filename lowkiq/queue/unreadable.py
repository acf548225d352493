"""
Values in Redis that Lowkiq can't read. Anybody who reaches Redis may have written them: so each is skipped and told of,
hides no other, and costs nobody their page or their node.
"""

from __future__ import annotations

import math
import re
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

import msgspec
from redis.exceptions import ResponseError

from lowkiq import clock

T = TypeVar("T")

#: Seconds for which what was met is told of, unless its place is read again before.
KEPT_SECONDS: Final = 60.0
#: Places that are remembered; of more, somebody looks into Redis anyway.
MOST: Final = 1_000
#: Characters of a key, or of a value, that are told.
LONGEST: Final = 200
#: Digits of a number that needs no more looking at.
PLAIN_DIGITS: Final = 15
#: The largest count that is taken for one.
LARGEST: Final = 2**63 - 1

_PLAIN: Final = re.compile(r"[A-Za-z0-9_.:{}*@/+-]+")
_WRONG_TYPE: Final = re.compile(r"(?:Error running script [^@]{0,200}@user_script:\d+: )?WRONGTYPE ")


class Unreadable(msgspec.Struct, frozen=True):
    """A value that can't be read, in printable ASCII."""

    #: The key that holds it, as redis-cli takes it.
    key: str
    #: What it is instead of what it should be.
    why: str
    #: The command that removes it.
    remedy: str


class Met:
    """Unreadable values that were met lately, by the place where each was. Safe to share between threads."""

    def __init__(self) -> None:
        self._places: dict[str, tuple[float, Sequence[Unreadable]]] = {}
        self._lock = threading.Lock()

    def tell(self, place: str, found: Sequence[Unreadable], seconds: float = KEPT_SECONDS) -> None:
        """A place was read again, and this is all that can't be read of it."""
        if not found and place not in self._places:  # the usual case, which needs no lock
            return
        with self._lock:
            self._places.pop(place, None)
            if found and len(self._places) < MOST:
                self._places[place] = clock.monotonic() + seconds, found

    def whole(self, key: str | bytes, parse: Callable[[bytes], T], text: bytes) -> T | None:
        """What a key holds that was read just now; None of nothing, and where it can't be read."""
        met: list[Unreadable] = []
        found = parsed(met, quoted(key), f"UNLINK {quoted(key)}", parse, text) if text else None
        self.tell(f"value of {key!r}", met)
        return found

    def now(self) -> list[Unreadable]:
        """The values that were met and not found mended since; each once."""
        with self._lock:
            now = clock.monotonic()
            self._places = {place: row for place, row in self._places.items() if row[0] > now}
            found = [one for _, some in self._places.values() for one in some]
        return list(dict.fromkeys(found))


def of_another_type(key: str | bytes) -> Unreadable:
    """A key that holds another type than it should."""
    return Unreadable(quoted(key), "it is of another type than it should be", f"UNLINK {quoted(key)}")


def is_another_type(reply: Any) -> bool:
    """True for Redis's refusal of a command to a key of another type, also in a script; Redis 6 says there in which."""
    return isinstance(reply, ResponseError) and bool(_WRONG_TYPE.match(str(reply)))


def parsed(met: list[Unreadable], key: str, remedy: str, parse: Callable[..., T], *values: Any) -> T | None:
    """Calls `parse` with values; None, and a note, where it can't. `key` and `remedy` are quoted already."""
    try:
        return parse(*values)
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:
        why = "".join(char if " " <= char <= "~" else "?" for char in str(error))
        met.append(Unreadable(key, why[:LONGEST], remedy))
        return None


def count(text: bytes) -> int:
    """A number of things. Raises ValueError."""
    if not re.fullmatch(rb"[0-9]{1,19}", text) or int(text) > LARGEST:
        raise ValueError(f"{quoted(text, 60)} is no number of things")
    return int(text)


def finite(text: bytes) -> float:
    """A number that is one. Raises ValueError."""
    with suppress(ValueError):
        if math.isfinite(number := float(text)):
            return number
    raise ValueError(f"{quoted(text, 60)} is no finite number")


def bounded(text: bytes) -> float:
    """A number, of which the infinite ones are told as the largest: JSON has none. Raises ValueError."""
    number = float(text)
    if math.isnan(number):
        raise ValueError("it is no number")
    return max(min(number, sys.float_info.max), -sys.float_info.max)


def number_in(met: list[Unreadable], key: str, field: str | bytes, text: bytes) -> int:
    """A number of things in a field of a hash; 0, and a note, if it is none."""
    if len(text) <= PLAIN_DIGITS and text.isdigit():  # thousands of them are read at a time
        return int(text)
    where = f"{quoted(key)} {quoted(field)}"
    return parsed(met, where, f"HDEL {where}", count, text) or 0


def quoted(text: str | bytes, most: int = LONGEST) -> str:
    """A key or a value as redis-cli takes it: in printable ASCII, whatever it is. One that is long is cut."""
    data = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
    cut = data[:most].decode("latin-1")
    if not _PLAIN.fullmatch(cut):
        cut = '"' + re.sub(r'[^ -~]|["\\]', _escaped, cut) + '"'
    return cut if len(data) <= most else f"{cut}... ({len(data):,} bytes)"


def _escaped(match: re.Match[str]) -> str:
    char = match[0]
    return f"\\{char}" if char in '"\\' else {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(char, f"\\x{ord(char):02x}")
