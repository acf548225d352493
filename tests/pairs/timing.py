"""Timing: a job does not start before a time that somebody has set for it, unless somebody has set another since."""

from __future__ import annotations

from random import Random

from tests.pairs.capability import Capability
from tests.pairs.jobs import SECOND, Hand


class Timing(Capability):
    """What capabilities share that say when something may start."""

    name = ""

    def begin(self, random: Random) -> None:
        self.state = {"not_before": {}}

    def not_before(self, id: str, seconds: float) -> None:
        """It may not start for so many seconds."""
        self.state["not_before"][id] = self.world.now + seconds * SECOND

    def on_started(self, hand: Hand, id: str) -> None:
        at = self.state["not_before"].pop(id, None)
        if at is not None and self.world.is_clock_steady:
            early = at - self.world.now
            # The first of several that come back together has the time itself, the others a microsecond more each.
            assert early <= 0, f"{self.name}: {id} starts {early / SECOND} s too early"

    def on_over(self, id: str, how: str) -> None:
        self.state["not_before"].pop(id, None)

    def on_left(self, id: str, how: str) -> None:
        self.state["not_before"].pop(id, None)

    def on_moved(self, id: str, how: str) -> None:
        self.state["not_before"].pop(id, None)
