"""Owners: who has a shard, and what runs there, put together from the shards' leases and the nodes' heartbeats."""

from __future__ import annotations

from lowkiq.admin.metrics import ShardMetrics
from lowkiq.admin.nodes import NodeHealth, Running, running_batches
from lowkiq.web.render import formatting
from lowkiq.web.snapshot import Snapshot


class Owners:
    """Answers for one snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._nodes = {node.node: node for node in snapshot.nodes.nodes}
        self._has_hosts = len({node.host for node in snapshot.nodes.nodes}) > 1
        self._shards = {(shard.queue, shard.shard): shard for shard in snapshot.shards}
        self._running = running_batches(snapshot.nodes.nodes)

    def shard(self, queue: str, number: int) -> ShardMetrics | None:
        """The numbers of a shard, if they are known already."""
        return self._shards.get((queue, number))

    def running(self, queue: str, shard: int) -> Running | None:
        """The batch of a shard that is performed, by the last heartbeat."""
        return self._running.get((queue, shard))

    def node(self, owner: str | None) -> NodeHealth | None:
        """The node of that name, if it beats."""
        return self._nodes.get(owner or "")

    def name(self, owner: str | None) -> str:
        """An owner in few words: its number, where several machines have nodes also its host."""
        node = self.node(owner)
        if node is None:
            return formatting.printable(owner, 80) if owner else "nobody"
        return f"node {node.node_number}" + (f" on {formatting.printable(node.host, 60)}" if self._has_hosts else "")
