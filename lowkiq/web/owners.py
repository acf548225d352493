"""Owners: who has a shard, and what runs there, put together from the shards' leases and the nodes' heartbeats."""

from __future__ import annotations

from dataclasses import dataclass

from lowkiq.admin.metrics import ShardMetrics
from lowkiq.admin.nodes import BEAT_INTERVAL, NodeHealth, ThreadHealth
from lowkiq.node.dump import ID_CHARS
from lowkiq.web.render import formatting as words
from lowkiq.web.snapshot import Snapshot


@dataclass(frozen=True)
class Running:
    """A batch that a thread performs."""

    node: NodeHealth
    thread: ThreadHealth

    @property
    def seconds(self) -> float:
        """
        For how long, if it still runs. A batch that had run for longer than a beat when the last one told of it is
        taken to go on; of a shorter one we only know how long it had run by then.
        """
        return self.thread.seconds + (self.node.beat_age if self.thread.seconds > BEAT_INTERVAL else 0.0)

    @property
    def jobs(self) -> str:
        """The batch in words, for a sentence."""
        first = words.printable(self.thread.ids[0], 60) if self.thread.ids else "a job"
        return first if self.thread.jobs <= 1 else f"{first} and {self.thread.jobs - 1:,} more"

    def has(self, id: str) -> bool | None:
        """Whether an id is of the batch; None if the batch is too large for its beat to name them all."""
        if id[:ID_CHARS] in self.thread.ids:
            return True
        return None if self.thread.jobs > len(self.thread.ids) else False


class Owners:
    """Answers for one snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._nodes = {node.node: node for node in snapshot.nodes.nodes}
        self._has_hosts = len({node.host for node in snapshot.nodes.nodes}) > 1
        self._shards = {(shard.queue, shard.shard): shard for shard in snapshot.shards}
        self._running = {
            (thread.queue, thread.shard): Running(node, thread)
            for node in snapshot.nodes.nodes
            for thread in node.threads
            if thread.queue is not None
        }

    def shard(self, queue: str, number: int) -> ShardMetrics | None:
        """The numbers of a shard, if they are known already."""
        return self._shards.get((queue, number))

    def running(self, queue: str, shard: int) -> Running | None:
        """What is performed of a shard, as the last beat told."""
        return self._running.get((queue, shard))

    def node(self, owner: str | None) -> NodeHealth | None:
        """The node of that name, if it beats."""
        return self._nodes.get(owner or "")

    def name(self, owner: str | None) -> str:
        """An owner in few words: its number, where several machines have nodes also its host."""
        node = self.node(owner)
        if node is not None:
            return (
                f"node {node.node_number} on {words.printable(node.host, 60)}" if self._has_hosts else self._short(node)
            )
        return words.printable(owner, 80) if owner else "nobody"

    def _short(self, node: NodeHealth) -> str:
        return f"node {node.node_number}"
