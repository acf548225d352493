"""
Fostering: shards of nodes that are away are given to nodes that are there, so that none stands still.

While replicas change, nodes disagree for a while on whose part a shard is, and some shards are nobody's; a machine may
be gone for long. Then a node stands in, and gives the shard back when its own node asks for it. Only leases say who
runs a shard: all this does is ask.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

import structlog

from lowkiq.admin.metrics import ShardMetrics
from lowkiq.admin.nodes import ask_to_foster, exchange_unowned, living_nodes
from lowkiq.queue.call import Caller
from lowkiq.queue.shard import Shard

logger = structlog.get_logger("lowkiq")


#: Shards that the log names.
MOST_TOLD: Final = 20


class Fostering:
    """Called by whichever node has looked at all shards for the history."""

    def __init__(self, caller: Caller, namespace: str) -> None:
        self._caller = caller
        self._namespace = namespace
        self._told: set[str] = set()

    def __call__(self, shards: Sequence[tuple[Shard, ShardMetrics]]) -> None:
        """
        Finds a node for each shard that nobody has had for two looks: after one, its own node may just be starting.
        Whoever is asked and can't leaves it to the next look, and to another node.
        """
        unowned = [shard for shard, metrics in shards if metrics.is_unowned]
        prefixes = {shard.prefix for shard in unowned}
        seen = exchange_unowned(self._caller, self._namespace, prefixes)
        left_alone = [shard for shard in unowned if shard.prefix in seen]
        self._tell({shard.prefix for shard in left_alone})
        if not left_alone:
            return
        nodes = living_nodes(self._caller, self._namespace)
        random.shuffle(nodes)
        if nodes:
            asked = [(nodes[number % len(nodes)], shard) for number, shard in enumerate(left_alone)]
            ask_to_foster(self._caller, self._namespace, asked)

    def _tell(self, prefixes: set[str]) -> None:
        """Each once: of a queue that no node has a worker for, nobody can take the shards, however often one asks."""
        if new := prefixes - self._told:
            logger.info("unowned_shards", shards=sorted(new)[:MOST_TOLD], count=len(new))
        self._told = prefixes
