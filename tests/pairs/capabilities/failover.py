"""Failover: Redis goes on with what it had a moment ago. What came since is lost, and nothing else is."""

from __future__ import annotations

from random import Random

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
