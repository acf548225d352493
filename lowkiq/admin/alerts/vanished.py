"""
Vanished: machines whose nodes share the shards by themselves, and that went away without saying goodbye. Nobody has
said how many there should be, so nobody can miss one: for a while people are told.

A node that ends, as a scale-down has it, says goodbye: its heartbeat is forgotten. So is that of one which dies alone,
by its successor. What is left is of supervisors that died with all their nodes: of a machine, a pod, a kill.
"""

from __future__ import annotations

import datetime
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from lowkiq.admin.alerts.alert import NAMED, Alert
from lowkiq.admin.alerts.situation import Situation
from lowkiq.admin.beats.health import BEAT_TTL, MOST_GONE, NodeHealth, read_beats
from lowkiq.admin.words import first_of, plural, printable
from lowkiq.queue.call import Caller, grouped

#: Seconds for which it is told: long enough that a night's watch sees it, short enough that a cluster whose machines
#: are taken away as a matter of course is not always ill.
TOLD_FOR: Final = 900.0


class Gone:
    """Reads the last heartbeats of nodes that have not beaten lately: each once, as none follows."""

    def __init__(self, caller: Caller, namespace: str) -> None:
        self._caller, self._namespace = caller, namespace
        #: Node → when it beat last, and the heartbeat, if it can be read.
        self._read: dict[bytes, tuple[float, NodeHealth | None]] = {}

    def __call__(self, beats_at: Mapping[bytes, float], at: float) -> list[NodeHealth]:
        """
        The last heartbeats of nodes that share by themselves.

        Args:
            beats_at: node → its last beat, the newest first. at: Redis's time.
        """
        lately = [(name, beat) for name, beat in beats_at.items() if BEAT_TTL < at - beat <= BEAT_TTL + TOLD_FOR]
        due = dict(lately[:MOST_GONE])
        self._read = {name: row for name, row in self._read.items() if due.get(name) == row[0]}
        if new := {name: at - beat for name, beat in due.items() if name not in self._read}:
            found = {health.node: health for health in read_beats(self._caller, self._namespace, new)}
            self._read |= {name: (due[name], found.get(name.decode("utf-8", "replace"))) for name in new}
        return [
            msgspec.structs.replace(health, beat_age=at - beat)
            for beat, health in self._read.values()
            if health is not None and health.is_elastic
        ]


def of_vanished(now: Situation) -> Iterator[Alert]:
    """An alert a supervisor that is gone with its nodes. If all are gone, another alert says so."""
    if not now.nodes.nodes:
        return
    machines = grouped((node.supervisor, node) for node in now.vanished)
    yield from (_vanished(now, nodes) for nodes in machines.values() if not _is_back(now, nodes))


def _is_back(now: Situation, gone: Sequence[NodeHealth]) -> bool:
    """True if its supervisor is there, which then tells what it misses; or nodes have begun on that machine since."""
    return any(
        other.supervisor == one.supervisor
        or (other.host == one.host and other.started_at > one.beat_at and _share(one, other))
        for one in gone
        for other in now.nodes.nodes
    )


def _share(one: NodeHealth, other: NodeHealth) -> bool:
    return one.queues is None or any(map(other.runs, one.queues))


def _vanished(now: Situation, gone: Sequence[NodeHealth]) -> Alert:
    first = gone[0]
    host, since = printable(first.host, 60), now.at - min(node.beat_age for node in gone)
    says = (
        f"{host} went away without saying goodbye at {_clock(since)}, with {plural(len(gone), 'node')}; "
        f"{_its_shards(now, gone)}"
    )
    do = (
        "See the machine, and start another if its work is missed. If it was taken away on purpose, nothing need be "
        f"done: this ends by itself after {TOLD_FOR / 60:.0f} min, or with `lowkiq nodes forget {shlex.quote(host)}`"
    )
    return Alert("vanished", "warn", host, says, do, since, "/nodes", "lowkiq nodes", str(first.supervisor))


def _its_shards(now: Situation, gone: Sequence[NodeHealth]) -> str:
    """Says who has the shards that a machine had, by what the living tell."""
    had = {(queue, shard) for node in gone for queue, shards in node.owned.items() for shard in shards}
    if not had:
        return "it had no shards"
    takers: Counter[str] = Counter()
    for node in sorted(now.nodes.nodes, key=lambda node: -node.beat_age):
        mine = {(queue, shard) for queue, shards in node.owned.items() for shard in shards} & had
        if mine and not node.is_late:
            takers[f"node {node.node_number} on {printable(node.host, 60)}"] += len(mine)
            had -= mine
    left, count = len(had), len(had) + takers.total()
    told = first_of(takers.most_common(), NAMED, lambda taker: f"{taker[0]} ({taker[1]:,})")
    its = f"its {plural(count, 'shard')}"
    if not takers:
        return f"nobody has {its} yet"
    return f"{its} went to {told}" + (f", and {left:,} to nobody yet" if left else "")


def _clock(at: float) -> str:
    return f"{datetime.datetime.fromtimestamp(at, datetime.UTC):%H:%M} UTC"
