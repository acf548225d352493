"""Following: what jobs share that follow from others, or wait for them: letters, which owners take along."""

from __future__ import annotations

from random import Random

from lowkiq.queue import letters
from lowkiq.queue.letters import Homes, Outbox
from tests.pairs.capability import Capability
from tests.pairs.jobs import Lease
from tests.pairs.rig import NAMESPACE

#: Calls in which a shard asks for all that its jobs wait for, at most.
MOST_PAGES = 20


def outbox_of(lease: Lease) -> Outbox:
    """The letters of a shard, for its owner."""
    return Outbox(lease.shard, *lease.owner, lambda: not lease.is_lost)


class Following(Capability):
    """Takes letters along, of which the world has at most one that does so."""

    name = ""

    def begin(self, random: Random) -> None:
        self.homes = Homes(self.world.caller, NAMESPACE)

    def relay(self, random: Random) -> None:
        """An owner takes some letters along, and may die with what it has read, or before it says what has arrived."""
        leases = list(self.world.leases.values())
        if not leases:
            return
        box = outbox_of(random.choice(leases))
        for _ in range(random.randint(1, 3)):
            page = self.world.run(box.turn())
            if not isinstance(page, list) or not page:
                return
            if random.random() < 0.3:
                return
            letters._deliver(self.world.caller, self.homes, {box: page})
            self.world.hear_of_letters()
            box.go_on()

    def relay_all(self, random: Random) -> None:
        letters.relay(self.world.caller, self.homes, [outbox_of(lease) for lease in self.world.leases.values()])
        self.world.hear_of_letters()

    def ask_again(self, random: Random) -> None:
        """Whoever waits asks once more."""
        for lease in list(self.world.leases.values()):
            place = b"0"
            for _ in range(MOST_PAGES):
                place = self.world.run(letters.ask_again(lease.shard, *lease.owner, place, 0.0))
                if place == b"0" or isinstance(place, Exception):
                    break

    def work(self) -> bool:
        """All letters, of all shards. True as long as there were any."""
        prefixes = [lease.shard.prefix for lease in self.world.leases.values()]
        if not prefixes or not self.world.rig.redis.exists(*(f"{prefix}outbox" for prefix in prefixes)):
            return False
        self.relay_all(Random(0))
        return True

    def left(self) -> list[str]:
        return ["relayed"]  # up to where each shard's letters have come
