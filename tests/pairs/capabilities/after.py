"""After: a job runs once nothing of others is queued, runs, or is dead."""

from __future__ import annotations

from random import Random

from tests.pairs.jobs import Row
from tests.pairs.waiting import Waiting

#: Who may wait for whom: never in a circle.
MAY_WAIT = {"c": ("a", "b"), "d": ("a", "b", "c"), "e": ("a", "c", "d")}


class After(Waiting):
    name = "after"
    steps = {"push_after": 4, "relay": 3, "relay_all": 2, "ask_again": 1}  # noqa: RUF012

    def push_after(self, random: Random) -> None:
        id = random.choice(sorted(MAY_WAIT))
        row = self.world.new_row(random, id)
        others = MAY_WAIT[id]
        row.after = tuple(random.sample(others, random.randint(1, len(others))))
        self.world.push_rows([row])

    def on_pushed(self, row: Row) -> None:
        if row.after:
            self.wait_for(row.id, set(row.after))
