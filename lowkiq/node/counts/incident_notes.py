"""IncidentNotes: what has happened to the node, and to its supervisor's others, until a beat tells Redis."""

from __future__ import annotations

import socket
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from lowkiq import clock
from lowkiq.admin import words
from lowkiq.admin.past.incidents import NewIncident, Severity, note
from lowkiq.queue.call import Caller, grouped, redis_time
from lowkiq.queue.shard import Shard
from lowkiq.shared_page import Bulletin

#: Incidents that wait for Redis; of more, the oldest are dropped.
MOST: Final = 1_000
#: Queues that one names.
NAMED: Final = 10
#: State of a node that leaves → kind of the incident, and its sentence.
LEAVES: Final[Mapping[str, tuple[str, str]]] = {
    "retiring": ("retiring", "It retires: it takes no new jobs, and ends after those that run"),
    "draining": ("stopped", "It drains: it was told to end"),
}


class IncidentNotes:
    """Any thread may note; the heartbeat's sends. Times are kept by the machine's clock, and told by Redis's."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[tuple[float, NewIncident]] = deque(maxlen=MOST)
        self._lost: list[Shard] = []
        self._number = 0

    def note(self, kind: str, says: str, severity: Severity = "note") -> None:
        """Notes something."""
        with self._lock:
            self._number += 1
            new = NewIncident(key=f"{self._number}", kind=kind, severity=severity, says=says)
            self._waiting.append((clock.monotonic(), new))

    def lost(self, shard: Shard) -> None:
        """A lease is lost. Those of one burst are one incident."""
        with self._lock:
            self._lost.append(shard)

    def send(self, caller: Caller, namespace: str, node: str) -> None:
        """Sends what waits; what could not be sent waits for the next beat."""
        if lost := self._lost:
            self._lost = []
            self.note("lease lost", _lost_leases(lost), "bad")
        if not self._waiting:
            return
        waiting = list(self._waiting)
        elsewhere = redis_time(caller) - clock.monotonic()
        host = socket.gethostname()
        news = [
            msgspec.structs.replace(new, key=f"{node}:{new.key}", node=node, host=host, at=at + elsewhere)
            for at, new in waiting
        ]
        note(caller, namespace, news)
        with self._lock:
            sent = {id(new) for _, new in waiting}
            self._waiting = deque((row for row in self._waiting if id(row[1]) not in sent), MOST)


class SupervisorEvents:
    """Sends what the supervisor has put into its bulletin: all its nodes do, and each event is noted once."""

    def __init__(self, read_bulletin: Callable[[], Bulletin]) -> None:
        self._read = read_bulletin
        self._sent: frozenset[str] = frozenset()

    def send(self, caller: Caller, namespace: str) -> None:
        # The page was made by the supervisor's own code, which may be older than the node's.
        events = getattr(self._read(), "events", ())
        new = [event for event in events if event.key not in self._sent]
        if new:
            elsewhere, host = redis_time(caller) - clock.monotonic(), socket.gethostname()
            severities: Mapping[str, Severity] = {"bad": "bad", "warn": "warn"}
            news = [
                NewIncident(
                    key=f"supervisor:{event.key}", kind=event.kind, severity=severities.get(event.severity, "note"),
                    says=event.says, node=event.node, host=host, at=event.at + elsewhere,
                )
                for event in new
            ]  # fmt: skip
            note(caller, namespace, news)
        self._sent = frozenset(event.key for event in events)


def started(number: int, of: int, environment: Mapping[str, str]) -> str:
    """The sentence on a node's start."""
    why = environment.get("LOWKIQ_LAST_EXIT", "")
    says = f"Node {number} of {of} is ready"
    return f"{says}, in place of one that ended: {words.printable(why, 300)}" if why else says


def _lost_leases(shards: Sequence[Shard]) -> str:
    by_queue = grouped((shard.queue, shard.index) for shard in shards)
    named = [f"{words.ranges(numbers)} of {words.printable(queue, 60)}" for queue, numbers in by_queue.items()]
    more = [f"{len(named) - NAMED:,} queues more"] if len(named) > NAMED else []
    count = "a lease" if len(shards) == 1 else f"{len(shards):,} leases"
    return f"It lost {count} while it lived: {words.listed([*named[:NAMED], *more])}"
