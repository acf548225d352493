"""Due times: a job does not start before its own; somebody may have it run now."""

from __future__ import annotations

from random import Random

from tests.pairs.jobs import IDS, SECOND, Row
from tests.pairs.timing import Timing


class Delays(Timing):
    name = "delays"
    steps = {"perform_now": 2}  # noqa: RUF012

    def dress(self, row: Row, random: Random) -> None:
        if row.debounce is None and random.random() < 0.5:
            seconds = random.choice((0.5, 20.0, 3_000.0))
            now = self.world.now / SECOND
            row.perform_in = random.choice((f"+{seconds:.6f}", f"{now + seconds:.6f}", f"{now - 100:.6f}"))

    def on_pushed(self, row: Row) -> None:
        if row.perform_in and not row.was_queued:
            at = row.perform_in
            self.not_before(row.id, float(at) if at.startswith("+") else float(at) - self.world.now / SECOND)

    def perform_now(self, random: Random) -> None:
        id = random.choice(IDS)
        if self.world.act("perform_now", "due", [id]):
            self.world.moved(id, "now")
