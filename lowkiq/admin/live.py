"""
Live settings: options of queues that people have set in Redis, in place of those of the code. Nodes are rung when one
changes, and look with each beat: all settings of all queues are one hash, and mostly there is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from lowkiq.admin.beats.hands import ring_all
from lowkiq.admin.past.incidents import note_deed
from lowkiq.admin.publishing import Event, publish
from lowkiq.admin.words import printable
from lowkiq.codec import encodable
from lowkiq.errors import SettingsError, unknown_option
from lowkiq.options import SETTABLE, check_live
from lowkiq.queue import keys
from lowkiq.queue.call import Caller, redis_time
from lowkiq.queue.unreadable import Unreadable, parsed, quoted

Value = int | float | str | None

#: Characters of a name that are kept.
MOST_WHO = 200
#: Settings that are read.
MOST: Final = 10_000


class LiveSetting(msgspec.Struct, frozen=True):
    """A setting of a queue that somebody has set."""

    value: Value
    who: str = ""
    #: By Redis's clock.
    at: float = 0.0


def read_live(caller: Caller, namespace: str) -> dict[str, dict[str, LiveSetting]]:
    """Queue → name → what is set. What can't be read, or can't be, is told of and left out."""
    key, met = keys.live_settings(namespace), list[Unreadable]()
    (rows,) = caller.read([("HGETALL", key)], {})
    pairs = rows.items() if isinstance(rows, Mapping) else zip(rows[::2], rows[1::2], strict=True)
    found: dict[str, dict[str, LiveSetting]] = {}
    for field, text in list(pairs)[:MOST]:
        remedy = f"HDEL {quoted(key)} {quoted(field)}"
        if row := parsed(met, f"{quoted(key)} {quoted(field)}", remedy, _parse, field, text):
            queue, name, setting = row
            found.setdefault(queue, {})[name] = setting
    caller.met.tell(key, met)
    return found


def set_live(caller: Caller, namespace: str, queue: str, values: Mapping[str, Any], who: str) -> None:
    """Sets options of a queue. Raises SettingsError, and sets nothing, for one that can't be."""
    if not values:
        raise SettingsError(f"nothing to set: there are {', '.join(SETTABLE)}")
    for name, value in values.items():
        check_live(queue, name, value)
    at = redis_time(caller)
    words: list[Any] = []
    for name, value in values.items():
        words += (f"{queue} {name}", msgspec.json.encode(LiveSetting(value, encodable(who)[:MOST_WHO], at)))
    caller.commands([("HSET", keys.live_settings(namespace), *words)])
    said = ", ".join(f"{name} = {'none' if value is None else value}" for name, value in values.items())
    _tell(caller, namespace, queue, f"set {said}", who, at)


def unset_live(caller: Caller, namespace: str, queue: str, names: Iterable[str], who: str) -> int:
    """Has options of a queue be those of the code again. Returns how many were set."""
    names = list(names)
    for name in names:
        if name not in SETTABLE:
            raise unknown_option("live setting", name, SETTABLE)
    if not names:
        raise SettingsError(f"nothing to unset: there are {', '.join(SETTABLE)}")
    (gone,) = caller.commands([("HDEL", keys.live_settings(namespace), *(f"{queue} {name}" for name in names))])
    if gone:
        _tell(caller, namespace, queue, f"unset {', '.join(names)}", who, redis_time(caller))
    return int(gone)


def _tell(caller: Caller, namespace: str, queue: str, what: str, who: str, at: float) -> None:
    """Keeps it among the incidents, tells who listens to events, and has nodes look."""
    note_deed(caller, namespace, queue, "settings changed", f"Settings of {printable(queue, 60)}: {what}", who)
    by = f" by {printable(who, 80)}" if who else ""
    publish(caller, namespace, Event(at, "settings_changed", queue, detail=f"{what}{by}"))
    ring_all(caller, namespace)


def _parse(field: bytes, text: bytes) -> tuple[str, str, LiveSetting]:
    queue, _, name = field.decode().rpartition(" ")
    setting = _SETTING.decode(text)
    try:
        check_live(queue, name, setting.value)
    except SettingsError as error:
        raise ValueError(str(error)) from None
    return queue, name, setting


_SETTING: Final = msgspec.json.Decoder(LiveSetting)
