"""Snooze: a job comes back later and has not failed; one that its rate has not let start has not run."""

from __future__ import annotations

from random import Random
from typing import Any

from lowkiq.queue.shard import Snoozed
from tests.pairs.jobs import Hand
from tests.pairs.timing import Timing


class Snooze(Timing):
    name = "snooze"
    steps = {}  # noqa: RUF012
    fates = {"snoozed": 3, "limited": 2}  # noqa: RUF012

    def begin(self, random: Random) -> None:
        super().begin(random)
        self.state["naps"] = {}

    def decide(self, fate: str, hand: Hand, id: str, outcome: dict[str, list[Any]], random: Random) -> None:
        nap = Snoozed(id, random.choice((0.0, 20.0)), fate)  # type: ignore[arg-type]
        outcome[fate].append(nap)

    def on_ended(self, hand: Hand, outcome: Any) -> None:
        self.state["naps"] |= {nap.id: nap.delay for nap in (*outcome.snoozed, *outcome.limited)}

    def on_over(self, id: str, how: str) -> None:
        super().on_over(id, how)
        delay = self.state["naps"].pop(id, 0.0)
        if how in {"snoozed", "limited"} and self.world.book.of(id).queued:
            self.not_before(id, delay)
