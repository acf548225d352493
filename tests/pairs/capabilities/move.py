"""Move: another node is dealt a shard; its owner hears so, and hands it over."""

from __future__ import annotations

from random import Random

from lowkiq.queue.shard import Held, Owned, Released, renew, renew_away
from tests.pairs.capability import Capability
from tests.pairs.nodes import TTL


class Move(Capability):
    name = "move"
    steps = {"move": 5, "renew": 1, "renew_away": 1}  # noqa: RUF012

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
        if isinstance(found, Owned):
            assert world.has_failed_over, f"I4: {other} gets {lease.shard.prefix}, which {lease.node} holds"
            world.owned(lease.shard, other, found)
        if not isinstance(found, Held):
            return
        running = list(lease.hands.values())
        result = world.leave(lease, random.sample(running, random.randint(0, len(running))))
        if isinstance(result, Released):
            assert result.told == other, f"move: {result.told!r} was told, {other} wants it"
            world.acquire(lease.shard, other)

    def renew_away(self, random: Random) -> None:
        """What runs away from its shard has a lease of its own."""
        for hand in list(self.world.away):
            lease = hand.lease
            (kept,) = self.world.run(renew_away([(lease.shard, lease.epoch, hand.number)], lease.node, TTL))
            self.world.tell(f"{lease.node} renews {hand.number} of {lease.epoch}: {kept}")
