"""Throttle: an id does not start again before its time."""

from __future__ import annotations

from random import Random

from tests.pairs.capability import Capability
from tests.pairs.jobs import IDS, SECOND, Hand, Row


class Throttle(Capability):
    name = "throttle"
    steps = {"push_throttled": 3}  # noqa: RUF012

    def begin(self, random: Random) -> None:
        self.seconds = {id: random.choice((3.0, 30.0)) for id in random.sample(IDS, 3)}
        self.state = {"started": {}}

    def dress(self, row: Row, random: Random) -> None:
        row.throttle = self.seconds.get(row.id)

    def push_throttled(self, random: Random) -> None:
        self.world.push_rows([self.world.new_row(random, random.choice(sorted(self.seconds)))])

    def on_started(self, hand: Hand, id: str) -> None:
        seconds, now = self.world.book.of(id).throttle, self.world.now
        if seconds is None:
            return
        since = self.state["started"].get(id)
        if since is not None and self.world.is_clock_steady:
            early = since + seconds * SECOND - now
            assert early <= 0, f"throttle: {id} starts {early / SECOND} s too early"
        self.state["started"][id] = now

    def on_over(self, id: str, how: str) -> None:
        if how in {"released", "limited"}:  # it has not run
            self.state["started"].pop(id, None)

    def on_moved(self, id: str, how: str) -> None:
        if how == "now":  # whoever asks for that means it
            self.state["started"].pop(id, None)

    def left(self) -> list[str]:
        return ["spaced"]  # it lapses
