"""
Emptied: a Redis that has lost what it held. Each namespace has a marker; who has seen it, and finds none or another,
knows that all is gone, and tells what there was when he looked last. People are told until somebody acknowledges it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from lowkiq.admin.alerts.alert import NAMED, Alert
from lowkiq.admin.metrics import QueueMetrics
from lowkiq.admin.past.incidents import note_deed
from lowkiq.admin.words import age, first_of, moment, plural, printable
from lowkiq.queue import keys
from lowkiq.queue.call import Caller
from lowkiq.queue.unreadable import parsed, quoted

#: Bytes of what is told that are read.
MOST_BYTES: Final = 16_384


class Loss(msgspec.Struct, frozen=True):
    """What Redis held when somebody looked last, and when it was found empty."""

    #: By Redis's clock, as is `at`.
    seen_at: float
    queued: int = 0
    dead: int = 0
    #: Ids that were held, and queues that were paused.
    held: int = 0
    paused: list[str] = []
    at: float = 0.0

    @property
    def is_any(self) -> bool:
        """True if there was anything to lose."""
        return bool(self.queued or self.dead or self.held or self.paused)


class Marker:
    """What this process knows of the marker, and has seen beside it."""

    def __init__(self, caller: Caller, namespace: str, *, is_writer: bool) -> None:
        self._is_writer = is_writer
        self._caller, self._key, self._told = caller, keys.marker(namespace), keys.emptied(namespace)
        self._known: bytes | None = None
        self._seen: Loss | None = None

    @property
    def reading(self) -> list[tuple[str, str] | tuple[str, str, int, int]]:
        """Commands, whose replies `look` takes."""
        return [("GET", self._key), ("GETRANGE", self._told, 0, MOST_BYTES)]

    def is_gone(self) -> bool:
        """True if it is not that which was known. Raises RedisError."""
        (marker,) = self._caller.read([("GET", self._key)], None)
        if self._known is None:
            self._known = marker
        return self.is_other(marker)

    def is_other(self, marker: bytes | None) -> bool:
        """True if it is not that which was known."""
        return self._known is not None and marker != self._known

    def look(self, marker: bytes | None, told: bytes, queues: Mapping[str, QueueMetrics], at: float) -> Loss | None:
        """Returns what was lost, if that is not acknowledged. Raises ResponseError where nothing may be written."""
        if self.is_other(marker) and self._seen and self._seen.is_any:
            loss = msgspec.structs.replace(self._seen, at=at)
            self._caller.commands([("SET", self._told, msgspec.json.encode(loss), "NX")])
            told = told or msgspec.json.encode(loss)
        if marker is None and queues and self._is_writer:
            marker = secrets.token_hex(8).encode()
            self._caller.commands([("SET", self._key, marker, "NX")])
            (marker,) = self._caller.read([("GET", self._key)], None)
        self._known, self._seen = marker, _seen(queues, at)
        return parsed([], quoted(self._told), f"UNLINK {quoted(self._told)}", _LOSS.decode, told) if told else None


def acknowledge(caller: Caller, namespace: str, who: str) -> bool:
    """Ends the alert of a Redis that came back empty, in somebody's name. Returns whether there was one."""
    (gone,) = caller.commands([("UNLINK", keys.emptied(namespace))])
    if gone:
        note_deed(caller, namespace, "", "acknowledged", "That Redis came back empty", who)
    return bool(gone)


def of_emptied(loss: Loss | None) -> Iterator[Alert]:
    """The alert of it."""
    if loss is None:
        return
    before = f"{plural(loss.queued, 'job')} queued, {loss.dead:,} dead before"
    earlier = age(max(loss.at - loss.seen_at, 0.0))
    parts = [f"Redis came back empty at {moment(loss.at)}: {before}, as of {earlier} earlier"]
    if loss.paused:
        names = first_of(loss.paused, NAMED, lambda queue: printable(queue, 60))
        was, run = ("queue", "was paused, and runs") if len(loss.paused) == 1 else ("queues", "were paused, and run")
        parts.append(f"{was} {names} {run} now")
    if loss.held:
        parts.append(f"{plural(loss.held, 'id')} {'was' if loss.held == 1 else 'were'} held, and may run now")
    do = (
        "Find out what has emptied it, restore its data or push again what is known elsewhere, and pause anew what "
        "must not run; then acknowledge it"
    )
    yield Alert(
        "emptied", "bad", "", "; ".join(parts), do, loss.at, "/incidents", "lowkiq alerts emptied --acknowledge"
    )


def _seen(queues: Mapping[str, QueueMetrics], at: float) -> Loss:
    rows = queues.values()
    return Loss(
        at, sum(row.length + row.busy for row in rows), sum(row.morgue_length for row in rows),
        sum(row.held for row in rows), [queue for queue, row in queues.items() if row.paused][:100],
    )  # fmt: skip


_LOSS: Final = msgspec.json.Decoder(Loss)
