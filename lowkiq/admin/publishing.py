"""Publishing: tells whoever listens to events (events.py) of what happens to a queue, or to one of its shards."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec
from redis.exceptions import NoPermissionError

from lowkiq.queue.call import Caller
from lowkiq.transport.cluster import ClusterClient


class Event(msgspec.Struct, frozen=True):
    """Something that happened to a job; with lease_lost and death to a shard, with settings_changed to a queue."""

    at: float
    kind: str
    queue: str
    id: str = ""
    node: str = ""
    detail: str = ""


def publish(caller: Caller, namespace: str, event: Event) -> None:
    """Tells of what is not of a job, as notes.lua does of jobs. A user who may not publish tells nobody."""
    node, note = event.node.encode(), f"{event.kind} {event.at:.6f}"
    with contextlib.suppress(NoPermissionError):
        text = f"0 {note} {len(node)} ".encode() + node + event.detail.encode()
        caller.command("PUBLISH", channel_of(caller, namespace, event.queue), text)


def channel_of(caller: Caller, namespace: str, queue: str) -> str:
    """The channel of a queue's events."""
    return f"{namespace}:bell:events{mark_of_database(caller)}:{queue}"


def mark_of_database(caller: Caller) -> str:
    """
    A database's part in the names of channels, which all databases of a server share: "@5". Database 0 has none. A
    script does not know in which it runs, so `watch` tells those of the shards that it has publish.
    """
    client: Any = caller.client
    number = 0 if isinstance(client, ClusterClient) else client.get_connection_kwargs().get("db")
    return f"@{number}" if number else ""
