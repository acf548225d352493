"""Pause: nothing of the queue starts until somebody resumes it."""

from __future__ import annotations

from random import Random

from lowkiq.admin.jobs import pausing
from tests.pairs.capability import Capability
from tests.pairs.jobs import Hand, Lease


class Pause(Capability):
    name = "pause"
    steps = {"pause": 2, "resume": 2, "rest": 2}  # noqa: RUF012

    def begin(self, random: Random) -> None:
        self.state = {"is_paused": False}

    def pause(self, random: Random) -> None:
        pausing.pause(self.world.caller, self.world.shards, "why", "who", 0.0)
        self.state["is_paused"] = True
        self.world.tell("pause")

    def resume(self, random: Random) -> None:
        pausing.resume(self.world.caller, self.world.shards, "who")
        self.state["is_paused"] = False
        self.world.tell("resume")

    def rest(self, random: Random) -> None:
        """A node says that it starts nothing more."""
        if self.world.leases:
            self._rest(random.choice(list(self.world.leases.values())))

    def _rest(self, lease: Lease) -> None:
        """Claims of which it does not know go back."""
        world = self.world
        rests = world.run(lease.shard.rest(lease.node, lease.epoch, lease.number, sorted(lease.hands)))
        world.tell(f"{lease.node} rests: {rests}")
        if rests is not True:
            return
        known = {hand.key for hand in world.hands()}
        for id, record in world.book.records.items():
            if record.claim and record.claim[:2] == (lease.shard.prefix, lease.epoch) and record.claim not in known:
                world.book.returned(id)
                world.over(id, "released")

    def heal(self) -> None:
        for lease in list(self.world.leases.values()):
            self._rest(lease)

    def on_started(self, hand: Hand, id: str) -> None:
        assert not self.state["is_paused"], f"pause: {id} starts"

    def reason(self, id: str) -> str:
        return "paused" if self.state["is_paused"] else ""

    def free(self) -> None:
        self.resume(Random(0))
