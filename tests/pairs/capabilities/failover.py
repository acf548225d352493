"""Failover: Redis goes on with what it had a moment ago. What came since is lost, and nothing else is."""

from __future__ import annotations

from random import Random

from lowkiq.queue.shard import Restored
from lowkiq.shared_page import DeadNode
from tests.pairs.capability import Capability
from tests.pairs.jobs import SECOND


class Failover(Capability):
    name = "failover"
    steps = {"remember": 3, "fail_over": 2}  # noqa: RUF012

    def begin(self, random: Random) -> None:
        self.snapshot: tuple[object, ...] | None = None

    def remember(self, random: Random) -> None:
        """What the replica has."""
        self.snapshot = self.world.snapshot()
        self.world.tell("the replica has all up to here")

    def fail_over(self, random: Random) -> None:
        if self.snapshot is not None:
            self.world.restore(self.snapshot)
            self.snapshot = None
            self.world.advance(SECOND)
            self.world.tell("failover: what came since is lost")

    def work(self) -> bool:
        """What was settled away from its shard, and is in hand again, comes back: nobody renews its lease any more."""
        world, is_back = self.world, False
        held = {hand.key for hand in world.hands()}
        if not any(record.claim and record.claim not in held for record in world.book.records.values()):
            return False
        dead = [DeadNode(node, ()) for node in world.nodes_ever]
        for lease in list(world.leases.values()):
            result = world.run(lease.shard.restore_away(*lease.owner, world.max_crashes, dead))
            if isinstance(result, Restored) and result.restored:
                world.tell(f"what was away from {lease.shard.prefix} comes back: {result}")
                world.restored(lease.shard, set(world.nodes_ever))
                is_back = True
        return is_back
