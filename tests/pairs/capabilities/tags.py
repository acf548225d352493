"""Tags: those of an id's pushes join, go with it, and are gone with it."""

from __future__ import annotations

from random import Random

from tests.pairs.capability import Capability
from tests.pairs.jobs import Hand, Row

WORDS = ("x", "y", "z")


class Tags(Capability):
    name = "tags"
    steps = {"push_tagged": 3}  # noqa: RUF012

    def begin(self, random: Random) -> None:
        self.state = {"queued": {}}

    def dress(self, row: Row, random: Random) -> None:
        if random.random() < 0.6:
            row.tags = "\n".join(random.sample(WORDS, random.randint(1, 2)))

    def push_tagged(self, random: Random) -> None:
        self.world.push_rows([self.world.new_row(random)])

    def on_pushed(self, row: Row) -> None:
        known = self.state["queued"] if row.was_queued else self.state["queued"] | {row.id: set()}
        self.state["queued"] = known
        known.setdefault(row.id, set()).update(row.tags.split("\n") if row.tags else ())

    def on_started(self, hand: Hand, id: str) -> None:
        """Those that the pushes of what it has taken have named; what was in the morgue, or kept, may bring more."""
        found, known = set(hand.jobs[id].tags), self.state["queued"].get(id, set())
        assert known <= found, f"tags: {id} starts with {found}, it has {known}"
        if not self.world.book.of(id).queued:
            self.state["queued"].pop(id, None)

    def on_left(self, id: str, how: str) -> None:
        if not self.world.book.of(id).queued:
            self.state["queued"].pop(id, None)
