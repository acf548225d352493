"""Runtime: what the parts of one node share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from lowkiq.node.outage import Outage
from lowkiq.queue.call import Caller
from lowkiq.queue.shard import Shard, shards_of
from lowkiq.settings import Settings
from lowkiq.worker import Worker


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """One node: its name, what it runs, and how it reaches Redis."""

    #: Its name in Redis.
    node: str
    settings: Settings
    caller: Caller
    #: Called, from any thread, with what must stop the node.
    fatal: Callable[[BaseException], None]
    #: By queue.
    workers: Mapping[str, type[Worker]] = field(default_factory=dict)
    node_number: int = 0
    number_of_nodes: int = 1
    #: Nodes known to be dead: their shards are taken without waiting for the lease.
    dead_nodes: Sequence[str] = ()
    outage: Outage = field(default_factory=Outage)

    @property
    def namespace(self) -> str:
        """What every key begins with."""
        return self.settings.namespace

    @property
    def queues(self) -> dict[str, int]:
        """The shards_count of each queue."""
        return {worker.queue_name: worker.shards_count for worker in self.workers.values()}

    def shards(self) -> list[Shard]:
        """The shards of all queues."""
        return shards_of(self.namespace, self.queues)
