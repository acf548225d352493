"""Debounce: a job waits until nothing was pushed to its id for a while, and no longer than at most."""

from __future__ import annotations

from random import Random

from tests.pairs.capability import Capability
from tests.pairs.jobs import IDS, SECOND, Hand, Row


class Debounce(Capability):
    name = "debounce"
    steps = {"push_debounced": 4}  # noqa: RUF012

    def begin(self, random: Random) -> None:
        self.waits = {id: random.choice(((2.0, 3.0), (5.0, 60.0))) for id in random.sample(IDS, 3)}
        #: Id → when it was pushed first, and last, while nothing else has moved it.
        self.state = {"pushed": {}}

    def dress(self, row: Row, random: Random) -> None:
        if not row.perform_in:
            row.debounce = self.waits.get(row.id)

    def push_debounced(self, random: Random) -> None:
        self.world.push_rows([self.world.new_row(random, random.choice(sorted(self.waits)))])

    def on_pushed(self, row: Row) -> None:
        pushed, now = self.state["pushed"], self.world.now
        if row.was_claimed or row.debounce is None:
            pushed.pop(row.id, None)
        elif not row.was_queued:
            pushed[row.id] = now, now
        elif row.id in pushed:
            first, last = pushed[row.id]
            # Once it is due, a claim may have parked it, or put it off.
            pushed[row.id] = first, now if now < self._due(row.id, first, last) else last

    def _due(self, id: str, first: int, last: int) -> float:
        wait, at_most = self.waits[id]
        return min(last + wait * SECOND, first + at_most * SECOND)

    def on_started(self, hand: Hand, id: str) -> None:
        pushed = self.state["pushed"].pop(id, None)
        if pushed and self.world.is_clock_steady:
            early = self._due(id, *pushed) - self.world.now
            assert early <= 0, f"debounce: {id} starts {early / SECOND} s too early"

    def on_over(self, id: str, how: str) -> None:
        self.state["pushed"].pop(id, None)

    def on_left(self, id: str, how: str) -> None:
        self.state["pushed"].pop(id, None)

    def on_moved(self, id: str, how: str) -> None:
        self.state["pushed"].pop(id, None)
