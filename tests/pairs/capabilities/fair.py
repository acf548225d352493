"""Fairness: tenants take turns; none of what one has is left out, whatever moves it."""

from __future__ import annotations

from random import Random

from tests.pairs.capability import Capability
from tests.pairs.jobs import IDS, Row


class Fair(Capability):
    name = "fair"
    steps = {"push_fairly": 3}  # noqa: RUF012

    def begin(self, random: Random) -> None:
        self.tenants = {id: random.choice(("g", "h", "")) for id in IDS}

    def dress(self, row: Row, random: Random) -> None:
        row.tenant = self.tenants[row.id]

    def push_fairly(self, random: Random) -> None:
        self.world.push_rows([self.world.new_row(random) for _ in range(3)])

    def check(self) -> None:
        if not self.world.layout.is_moving:  # a tenant's ids may not have come yet
            for look in self.world.looks():
                look.lanes()

    def left(self) -> list[str]:
        return ["lane", "lanes", "lanes_later"]  # hints are dropped as they are met
