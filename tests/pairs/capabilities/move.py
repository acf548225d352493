"""Move: another node is dealt a shard; its owner hears so, and hands it over."""

from __future__ import annotations

from random import Random

from lowkiq.queue.shard import Held, Released, renew
from tests.pairs.capability import Capability
from tests.pairs.nodes import TTL


class Move(Capability):
    name = "move"
    steps = {"move": 5, "renew": 1}  # noqa: RUF012

    def renew(self, random: Random) -> None:
        for lease in list(self.world.leases.values()):
            kept = self.world.run(renew([lease.shard], lease.node, [lease.epoch], TTL))
            if not kept[0]:
                self.world.lose(lease)

    def move(self, random: Random) -> None:
        world = self.world
        if not world.leases:
            return
        lease = random.choice(list(world.leases.values()))
        other = random.choice([one for one in world.nodes if one != lease.node])
        found = world.run(lease.shard.acquire(other, TTL, world.max_crashes))
        world.tell(f"{other} wants {lease.shard.prefix}: {found}")
        if not isinstance(found, Held):
            return
        for hand in list(lease.hands.values()):
            world.settle_hand(hand, world.outcome_of(hand, random))
        if lease.hands or lease.is_lost:
            return
        result = world.run(lease.shard.release(*lease.owner, lease.number, "lease"))
        world.tell(f"{lease.node} hands {lease.shard.prefix} over: {result}")
        if isinstance(result, Released):
            assert result.told == other, f"move: {result.told!r} was told, {other} wants it"
            world.lose(lease)
            world.ghosts = [*world.ghosts[-3:], lease]
            world.acquire(lease.shard, other)
