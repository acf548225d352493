"""Scores of their own: payloads run by these, lowest first, whenever they were pushed."""

from __future__ import annotations

from random import Random

from tests.pairs.capability import Capability
from tests.pairs.jobs import Row


class Scores(Capability):
    name = "scores"
    steps = {"push_scored": 4}  # noqa: RUF012

    def dress(self, row: Row, random: Random) -> None:
        if random.random() < 0.5:
            row.score = round(random.uniform(1, 1e6) + random.choice((0.0, 4e9)), 3)

    def push_scored(self, random: Random) -> None:
        """Several of an id, so that their order shows."""
        first = self.world.new_row(random)
        self.world.push_rows([first, *(self.world.new_row(random, first.id) for _ in range(2))])
