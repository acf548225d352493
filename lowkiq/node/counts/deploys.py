"""Deploys: what a node that starts runs, where that is another version, or has other settings, than the last one."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from lowkiq.admin import words
from lowkiq.admin.past.incidents import NewIncident, note
from lowkiq.admin.publishing import Event, publish
from lowkiq.node.counts.incident_notes import NAMED
from lowkiq.options import OF_BOTH
from lowkiq.queue import keys
from lowkiq.queue.call import Call, Caller, redis_time
from lowkiq.version import VERSION
from lowkiq.worker import Worker

#: Bytes of a version or of a queue's settings, and of how many there were, that are read.
MOST: Final = 500
#: Settings of a queue that its worker has.
SETTINGS: Final = ("shards_count", *OF_BOTH, "isolation", "rate")


class _Last(NamedTuple):
    """What the last node that started has told."""

    stored: bytes
    text: str
    #: How many there have been: so a return to one is a change as well.
    number: int


def note_version(caller: Caller, namespace: str, queues: Sequence[str]) -> None:
    """
    Notes a deployment, when these queues are run by another version than the last time a node started. Noted first: a
    node that is killed before it tells the version leaves that to the next one, whose incident has the same key.
    """
    names = sorted(queues)
    group = hashlib.sha256("\n".join(names).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    key = keys.version(namespace, group)
    last = _read(caller, key)
    if last.text != VERSION:
        named = [*(words.printable(name, 60) for name in names[:NAMED]), *(["others"] * (len(names) > NAMED))]
        instead = f" in place of {words.printable(last.text)}" if last.text else ", for the first time"
        says = f"Lowkiq {VERSION} runs {words.listed(named)}{instead}"
        name = f"deploy:{group}:{last.number + 1}:{VERSION}"
        note(caller, namespace, [NewIncident(key=name, kind="deploy", severity="note", says=says)])
    _tell(caller, key, last, VERSION)


def note_settings(caller: Caller, namespace: str, node: str, workers: Iterable[type[Worker]]) -> None:
    """Notes settings of queues that differ from those with which a node has started last, and tells who listens."""
    for worker in workers:
        queue, now = worker.queue_name, {name: str(getattr(worker, name)) for name in SETTINGS}
        key, text = keys.settings(namespace, queue), " ".join(f"{name}={value}" for name, value in now.items())
        last = _read(caller, key)
        was = dict(word.split("=", 1) for word in last.text.split() if "=" in word)
        changed = [
            f"{name} {words.printable(was[name], 20)} → {value}"
            for name, value in now.items()
            if was.get(name, value) != value
        ]
        if changed:
            at, says = redis_time(caller), ", ".join(changed)
            name, kind = f"settings:{queue}:{last.number + 1}:{text}", "settings changed"
            new = NewIncident(key=name, kind=kind, severity="note", says=says, queue=queue, node=node, at=at)
            note(caller, namespace, [new])
            publish(caller, namespace, Event(at, "settings_changed", queue, node=node, detail=says))
        _tell(caller, key, last, text)


def _read(caller: Caller, key: str) -> _Last:
    (stored,) = caller.read([("GETRANGE", key, 0, MOST - 1)], b"")
    text, _, number = stored.decode("utf-8", "replace").rpartition(" ")
    if text and number.isascii() and number.isdigit():
        return _Last(stored, text, int(number))
    return _Last(stored, stored.decode("utf-8", "replace"), 0)


def _tell(caller: Caller, key: str, last: _Last, text: str) -> None:
    number = last.number + (last.text != text)
    caller.run(Call("version", [key], [last.stored, MOST, f"{text} {number}"], bytes))
