"""Deploys: what a node that starts runs, where that is another version, or has other settings, than the last one."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final

from lowkiq.admin import words
from lowkiq.admin.events import Event, publish
from lowkiq.admin.past.incidents import NewIncident, note
from lowkiq.node.counts.incident_notes import NAMED
from lowkiq.queue import keys
from lowkiq.queue.call import Call, Caller, redis_time
from lowkiq.version import VERSION
from lowkiq.worker import Worker

#: Characters of a version, and of a queue's settings.
MOST_VERSION: Final = 100
MOST_SETTINGS: Final = 500
#: Settings of a queue that its worker has.
SETTINGS: Final = ("shards_count", "batch_size", "concurrency", "max_retry_count", "perform_timeout", "isolation")


def note_version(caller: Caller, namespace: str, queues: Sequence[str]) -> None:
    """Notes a deployment, when these queues are run by another version than the last time a node started."""
    names = sorted(queues)
    group = hashlib.sha256("\n".join(names).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    was = words.printable(_last(caller, keys.version(namespace, group), VERSION, MOST_VERSION))
    if was == VERSION:
        return
    of = words.listed([*(words.printable(name, 60) for name in names[:NAMED]), *(["others"] * (len(names) > NAMED))])
    says = f"Lowkiq {VERSION} runs {of}" + (f" in place of {was}" if was else ", for the first time")
    at = redis_time(caller)
    key = f"deploy:{group}:{was}:{VERSION}:{at:.0f}"
    note(caller, namespace, [NewIncident(key=key, kind="deploy", severity="note", says=says, at=at)])


def note_settings(caller: Caller, namespace: str, node: str, workers: Iterable[type[Worker]]) -> None:
    """Notes settings of queues that differ from those with which a node has started last, and tells who listens."""
    for worker in workers:
        queue, now = worker.queue_name, {name: str(getattr(worker, name)) for name in SETTINGS}
        text = " ".join(f"{name}={value}" for name, value in now.items())
        last = _last(caller, keys.settings(namespace, queue), text, MOST_SETTINGS)
        was = dict(word.split("=", 1) for word in last.split() if "=" in word)
        changed = [
            f"{name} {words.printable(was[name], 20)} → {value}"
            for name, value in now.items()
            if was.get(name, value) != value
        ]
        if changed:
            at, says = redis_time(caller), ", ".join(changed)
            key = f"settings:{queue}:{text}:{at:.0f}"
            kind = "settings changed"
            new = NewIncident(key=key, kind=kind, severity="note", says=says, queue=queue, node=node, at=at)
            note(caller, namespace, [new])
            publish(caller, namespace, Event(at, "settings_changed", queue, node=node, detail=says))


def _last(caller: Caller, key: str, text: str, most: int) -> str:
    """Keeps a text under a key. Returns the one until now, or ""."""
    return caller.run(Call("version", [key], [text, most], bytes)).decode("utf-8", "replace")
