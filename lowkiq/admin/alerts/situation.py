"""Situation: all that alerts are judged by, read once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from lowkiq.admin.alerts.alert import Thresholds
from lowkiq.admin.alerts.emptied import Loss
from lowkiq.admin.beats.health import NodeHealth, Running
from lowkiq.admin.beats.nodes import Nodes
from lowkiq.admin.metrics import QueueMetrics, ShardMetrics
from lowkiq.admin.past.history import Point
from lowkiq.admin.pauses import Hold
from lowkiq.admin.resharding import Resharding
from lowkiq.admin.why.reasons import Reason
from lowkiq.queue.call import grouped


class Line(NamedTuple):
    """The line of a queue's rate."""

    jobs: int
    #: When the last of them may start.
    until: float
    #: That was less far away a minute ago.
    is_growing: bool


@dataclass(frozen=True, kw_only=True)
class Situation:
    """The nodes, shards and queues at one moment, and what is known of the minutes before."""

    nodes: Nodes
    thresholds: Thresholds = field(default_factory=Thresholds)
    #: Redis's time.
    at: float = 0.0
    shards: Sequence[ShardMetrics] = ()
    queues: Mapping[str, QueueMetrics] = field(default_factory=dict)
    #: Queue → how far it is with being resharded.
    reshards: Mapping[str, Resharding] = field(default_factory=dict)
    #: Queue → points of its history: about 15 s, half a minute, one, five and ten minutes and an hour ago, as far as
    #: there are any.
    past: Mapping[str, Sequence[Point]] = field(default_factory=dict)
    #: Late queue → why the first job of its latest shard does not run.
    reasons: Mapping[str, Reason] = field(default_factory=dict)
    #: Queue → the line of its rate, where jobs wait for that.
    lines: Mapping[str, Line] = field(default_factory=dict)
    #: Queue → ids that somebody holds, each with its payloads.
    holds: Mapping[str, Sequence[tuple[Hold, int]]] = field(default_factory=dict)
    #: Queue → seconds within which 99 % of its batches have run, where there were enough of them.
    usual: Mapping[str, float] = field(default_factory=dict)
    #: Key of an alert → since when it has been noted.
    noted: Mapping[str, float] = field(default_factory=dict)
    #: Last beats of nodes of which none has come since, of the last day.
    gone: Sequence[float] = ()
    #: What Redis held before it was found empty, if nobody has acknowledged that.
    loss: Loss | None = None
    #: Redis was away, or has lost all, or nobody has looked for a while: nodes that live need not have beaten since.
    is_back: bool = False
    #: When the last node was told to end, of those that said goodbye; it is read where none is there.
    stopped_at: float | None = None
    #: Last heartbeats of nodes that share by themselves, and have lately gone without a goodbye (vanished.py).
    vanished: Sequence[NodeHealth] = ()

    @cached_property
    def beating(self) -> Mapping[str, NodeHealth]:
        """Name → node that has beaten lately."""
        return {node.node: node for node in self.nodes.nodes}

    @cached_property
    def held(self) -> Mapping[str, list[ShardMetrics]]:
        """Owner → shards whose lease it has."""
        return _by_owner(shard for shard in self.shards if shard.lease_rest > 0)

    @cached_property
    def left(self) -> Mapping[str, list[ShardMetrics]]:
        """Owner → shards with due jobs whose lease it had last, and nobody has now."""
        return _by_owner(self.nodes.unowned)

    def shards_of(self, queue: str) -> Sequence[ShardMetrics]:
        return self._by_queue.get(queue, ())

    @cached_property
    def _by_queue(self) -> Mapping[str, list[ShardMetrics]]:
        return grouped((shard.queue, shard) for shard in self.shards)

    @property
    def batches(self) -> list[Running]:
        """All that is performed, the longest first."""
        found = [running for node in self.nodes.nodes for running in node.batches]
        return sorted(found, key=lambda running: -running.seconds)


def _by_owner(shards: Iterator[ShardMetrics] | Sequence[ShardMetrics]) -> dict[str, list[ShardMetrics]]:
    return grouped((shard.owner or "", shard) for shard in shards)
