"""Drain: a node leaves, by giving back what it has, or while user code still runs; another goes on."""

from __future__ import annotations

from random import Random

from lowkiq.queue.shard import Released
from lowkiq.shared_page import DeadNode
from tests.pairs.capability import Capability


class Drain(Capability):
    name = "drain"
    steps = {"release": 4, "abandon": 2}  # noqa: RUF012

    def release(self, random: Random) -> None:
        """It gives a shard back, with all that has not run."""
        world = self.world
        if not world.leases:
            return
        lease = random.choice(list(world.leases.values()))
        if random.random() < 0.7:
            for hand in list(lease.hands.values()):
                world.settle_hand(hand, world.outcome_of(hand, random))
        if not lease.is_lost:
            running = list(lease.hands.values())
            result = world.leave(lease, random.sample(running, random.randint(0, len(running))))
            if isinstance(result, Released) and random.random() < 0.7:
                world.acquire(lease.shard, random.choice(world.nodes))

    def abandon(self, random: Random) -> None:
        """It leaves with work in hand, which counts against nobody."""
        world = self.world
        if world.leases:
            lease = random.choice(list(world.leases.values()))
            world.tell(f"{lease.node} abandons {lease.shard.prefix}: {world.run(lease.shard.abandon(*lease.owner))}")
            node = random.choice([one for one in world.nodes if one != lease.node])
            world.acquire(lease.shard, node, [DeadNode(lease.node, None)])
