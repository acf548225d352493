"""Equal payloads: one that is pushed again while it waits becomes one, in its latest place."""

from __future__ import annotations

from random import Random

from tests.pairs.capability import Capability
from tests.pairs.jobs import Row

#: Some of which could be taken for something else.
SAME = (b"", b"p", b"1:q", b"*", b":")


class Equal(Capability):
    name = "equal"
    steps = {"push_equal": 5}  # noqa: RUF012

    def dress(self, row: Row, random: Random) -> None:
        if random.random() < 0.6:
            row.payload = random.choice(SAME)

    def push_equal(self, random: Random) -> None:
        """A state that flaps."""
        id = self.world.new_row(random).id
        self.world.push_rows([self.world.new_row(random, id) for _ in range(3)])
