"""Clocks: that of Redis goes ahead and back; all that is due still runs, in its order."""

from __future__ import annotations

from random import Random

from tests.pairs.capability import Capability
from tests.pairs.jobs import SECOND


class Clocks(Capability):
    name = "clocks"
    steps = {"step": 5}  # noqa: RUF012
    sets_clock_back = True

    def step(self, random: Random) -> None:
        seconds = random.choice((-1e-6, -0.5, -5, -61, -3600, 0.5, 61, 3600))
        self.world.advance(round(seconds * SECOND))
        self.world.tell(f"the clock steps by {seconds}")
