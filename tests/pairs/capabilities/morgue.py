"""Morgue: somebody buries what is queued, and revives what is dead."""

from __future__ import annotations

from random import Random

from tests.pairs.capability import Capability
from tests.pairs.jobs import IDS


class Morgue(Capability):
    name = "morgue"
    steps = {"bury": 3, "revive": 3}  # noqa: RUF012

    def bury(self, random: Random) -> None:
        id = random.choice(IDS)
        if self.world.act("bury", "due", [id]):
            self.world.book.buried(id)
            self.world.left(id, "buried")

    def revive(self, random: Random) -> None:
        id = random.choice(IDS)
        if self.world.act("revive", "morgue", [id]):
            self.world.book.revived(id)
            self.world.moved(id, "revived")
