"""Elastic: has a node learn, beat by beat, which shards are its part, where nobody has numbered the nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import structlog

from lowkiq.admin.beats.members import Member, Members
from lowkiq.node.leases.lease import Lease
from lowkiq.node.ownership.deal import deal
from lowkiq.node.runtime import Runtime
from lowkiq.queue.shard import Shard

logger = structlog.get_logger("lowkiq")

#: Shards that the log names when a node's part has changed.
MOST_LOGGED: Final = 20


class Elastic:
    """
    Called before anything runs, and with each beat; nodes that come and go ring the others for one. A shard that is no
    longer the node's part is one that it stands in for: its jobs run on until the node whose part it is asks for it.

    Args:
        may_have: tells whether shards may be dealt to this node: not while it takes no jobs, or ends.
        look: called when its part has changed: some shards are to be asked for, others are perhaps wanted.
    """

    def __init__(
        self, runtime: Runtime, leases: Iterable[Lease], may_have: Callable[[], bool], look: Callable[[], None]
    ) -> None:
        self._runtime = runtime
        self._leases: dict[str, list[Lease]] = {}
        for lease in leases:
            self._leases.setdefault(lease.shard.queue, []).append(lease)
        self._may_have = may_have
        self._look = look
        self._members = Members(runtime.caller, runtime.namespace, runtime.node)
        #: Dead nodes that the others know of.
        self._left: set[str] = set()

    def __call__(self) -> None:
        """Raises RedisError."""
        dead = {node.name for node in self._runtime.dead_nodes()} - self._left
        self._members.leave(dead)
        self._left |= dead
        may_have = self._may_have()
        if not self._members.tell(self._own() if may_have else None):
            return
        came, went = list[Lease](), list[Lease]()
        for queue, leases in self._leases.items():
            dealt = self._deal(queue, leases, self._members.known)
            for lease, node in zip(leases, dealt, strict=True):
                is_foster = not may_have or node != self._runtime.node
                if is_foster != lease.is_foster:
                    (went if is_foster else came).append(lease)
                    lease.is_foster = is_foster
        if came or went:
            logger.info("part_changed", nodes=len(self._members.known), came=_named(came), went=_named(went))
            self._look()

    def heirs(self) -> dict[Shard, str]:
        """The nodes that this node's shards go to when it ends, as far as it knows them."""
        others = {name: member for name, member in self._members.known.items() if name != self._runtime.node}
        found = {}
        for queue, leases in self._leases.items():
            for lease, node in zip(leases, self._deal(queue, leases, others), strict=True):
                if node is not None:
                    found[lease.shard] = node
        return found

    def _own(self) -> Member:
        refused = self._runtime.refusals
        owned = {
            queue: [lease.shard.index for lease in leases if lease.epoch is not None]
            for queue, leases in self._leases.items()
            if not refused.has(queue)
        }
        return Member(self._runtime.settings.threads_per_node, owned)

    def _deal(self, queue: str, leases: list[Lease], members: Mapping[str, Member]) -> list[str | None]:
        """The node that each of these shards is to have. Of what this node has, its word is newer than its beat."""
        running = {name: member for name, member in members.items() if queue in member.owned}
        holders: list[str | None] = [None] * len(leases)
        for name, member in sorted(running.items()):
            for index in member.owned[queue]:
                if index < len(holders):
                    holders[index] = name
        for lease in leases:
            if lease.epoch is not None:
                holders[lease.shard.index] = self._runtime.node
            elif holders[lease.shard.index] == self._runtime.node:
                holders[lease.shard.index] = lease.holder
        return deal(queue, len(leases), {name: member.weight for name, member in running.items()}, holders)


def _named(leases: list[Lease]) -> list[str]:
    return [f"{lease.shard.queue}:{lease.shard.index}" for lease in leases[:MOST_LOGGED]]
