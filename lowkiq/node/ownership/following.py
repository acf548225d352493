"""Following: has a node run the shards that its queues have in Redis, whatever number of them it was started with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence

from lowkiq.hooks import Splitter
from lowkiq.log import get_logger
from lowkiq.node.leases.lease import Lease
from lowkiq.node.ownership.mover import Mover
from lowkiq.node.pool import Pool
from lowkiq.node.runtime import Runtime
from lowkiq.node.threads import own_part
from lowkiq.queue import resharding
from lowkiq.queue.call import grouped
from lowkiq.queue.keys import Layout
from lowkiq.queue.shard import shards_of

logger = get_logger()


class Following:
    """
    Called with each beat, and when somebody has begun a reshard. While a queue's shards are being moved the node has
    leases of both generations; those of the old one it gives to whoever moves them. Once that is over they go.

    Args:
        pools: each lease with its pool. It changes; who goes through it elsewhere takes a copy first.
        tell: called with all leases when there are others.
        beat_soon: has the next beat come at once.
    """

    def __init__(
        self,
        runtime: Runtime,
        pools: MutableMapping[Lease, Pool],
        tell: Sequence[Callable[[list[Lease]], None]],
        beat_soon: Callable[[], None],
    ) -> None:
        self._runtime = runtime
        self._pools = pools
        self._tell, self._beat_soon = tell, beat_soon
        self._ordered = list(dict.fromkeys(pools.values()))
        self._mover: Mover | None = None
        #: The splitter has failed.
        self._is_undealt = False
        self._is_stopping = False

    def __call__(self, layouts: Mapping[str, Layout]) -> None:
        """Follows these layouts, and moves what is to be moved if it is this node's turn."""
        known = self._runtime.layouts
        layouts = {**layouts, **self._brought_back(layouts)}
        changed = {queue: layout for queue, layout in layouts.items() if queue in known and layout != known[queue]}
        for queue, layout in changed.items():
            logger.info("layout_changed", queue=queue, shards=layout.shards_count, moves_from=layout.old_count or None)
            known[queue] = layout
        if changed or self._is_undealt or self._left_over():
            self._follow()
        is_moving = any(layout.is_moving for layout in known.values())
        if is_moving and not self._is_stopping and not (self._mover and self._mover.is_alive()):
            self._mover = Mover(self._runtime, self._beat_soon)
            self._mover.start()

    def _brought_back(self, layouts: Mapping[str, Layout]) -> dict[str, Layout]:
        """Goes on with reshards that a failover has lost, of which only shards on other servers know."""
        brought = {}
        for queue in {lease.shard.queue for lease in self._pools if lease.is_moved}:
            runtime, layout = self._runtime, layouts.get(queue)
            if layout and (lost := resharding.bring_back(runtime.caller, runtime.namespace, queue, layout)):
                logger.warning("lost_reshard_found", queue=queue, shards=lost.shards_count)
                brought[queue] = lost
        return brought

    def stop(self) -> None:
        """Has another node move what is left. It must have been called before the node's last beat."""
        self._is_stopping = True
        if self._mover:
            self._mover.stop()
            self._mover.join(self._runtime.settings.lease_ttl)

    def _left_over(self) -> list[Lease]:
        """Leases of shards that are no more, and of which nothing runs any more."""
        known = self._runtime.layouts
        gone = [lease for lease in self._pools if not lease.shard.is_known(known[lease.shard.queue])]
        return [lease for lease in gone if lease.epoch is None and not lease.is_busy]

    def _follow(self) -> None:
        runtime, pools = self._runtime, self._pools
        for queue, leases in grouped((lease.shard.queue, lease) for lease in pools).items():
            known = {lease.shard.prefix for lease in leases}
            for shard in shards_of(runtime.namespace, {queue: runtime.layouts[queue]}):
                if shard.prefix not in known:
                    lease = leases[0].beside(shard)
                    lease.is_foster = True
                    pools[lease] = pools[leases[0]]
        self._deal()
        for lease in self._left_over():
            del pools[lease]
        for pool in self._ordered:
            pool.follow([lease for lease, its in pools.items() if its is pool])
        for tell in self._tell:
            tell(list(pools))
        if not self._is_undealt:  # which the next beat asks for anyway
            self._beat_soon()  # the others are to know which shards may be this node's part

    def _deal(self) -> None:
        """Finds the node's part, as if it began anew; of one that is elastic none, before it is dealt (elastic.py)."""
        runtime, pools = self._runtime, self._pools
        leases = [lease for lease in pools if lease.is_current]
        if runtime.settings.build_splitter:
            dealt = self._split(runtime.settings.build_splitter, leases)
            if dealt is None:
                return
            for number, group in enumerate(dealt):
                for lease in group:
                    pools[lease] = self._ordered[number % len(self._ordered)]
            own = {lease for group in dealt for lease in group}
        elif runtime.is_elastic:
            return
        else:
            own = own_part(runtime, leases)
        for lease in leases:
            lease.is_foster = lease not in own

    def _split(self, build: Callable[..., Splitter], leases: list[Lease]) -> list[list[Lease]] | None:
        """The groups that a splitter of the user's makes; None if it fails: it is asked again with the next beat."""
        runtime = self._runtime
        try:
            split = build(runtime.node_number, runtime.number_of_nodes, runtime.settings.threads_per_node)
            dealt, known = [list(group) for group in split(leases) if group], set(leases)
            self._is_undealt = any(lease not in known for group in dealt for lease in group)
        except BaseException as error:  # noqa: BLE001 (it is the user's)
            self._is_undealt = True
            runtime.mishaps.met("splitter_failed", error, "new shards are other nodes' to run until it works")
            return None
        return dealt if not self._is_undealt else None
