"""Keep: of an id's payloads only the last, or the first, is kept while it waits. The book knows which."""

from __future__ import annotations

from random import Random

from tests.pairs.capability import Capability
from tests.pairs.jobs import IDS, Row


class Keeps(Capability):
    name = "keep"
    steps = {"push_kept": 4}  # noqa: RUF012

    def begin(self, random: Random) -> None:
        self.keeps = {id: random.choice(("last", "last", "first")) for id in random.sample(IDS, 3)}

    def dress(self, row: Row, random: Random) -> None:
        row.keep = self.keeps.get(row.id, "")  # type: ignore[assignment]

    def push_kept(self, random: Random) -> None:
        self.world.push_rows([self.world.new_row(random, random.choice(sorted(self.keeps)))])
