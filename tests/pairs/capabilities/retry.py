"""Decisions of a handler: to try again, now or later, to give up, and what it can't read."""

from __future__ import annotations

from random import Random
from typing import Any

from lowkiq.queue.claims import Spoiled
from lowkiq.queue.shard import Exhausted, Failure
from tests.pairs.jobs import Hand
from tests.pairs.timing import Timing


class Retry(Timing):
    name = "retry"
    steps = {}  # noqa: RUF012
    fates = {"failed": 3, "bury": 1, "bury_all": 1, "discard": 1, "spoil": 1}  # noqa: RUF012

    def begin(self, random: Random) -> None:
        super().begin(random)
        self.state["failed"] = {}

    def decide(self, fate: str, hand: Hand, id: str, outcome: dict[str, list[Any]], random: Random) -> None:
        job = hand.jobs[id]
        if fate == "failed":
            delay = random.choice((0.0, 20.0))
            outcome["failed"].append(Failure(id, job.retry_count + 1, delay, "no"))
        elif fate == "spoil":
            outcome["spoiled"].append(Spoiled(id, job.payloads[0], "can't be read"))
            outcome["released"].append(id)
        else:
            outcome["exhausted"].append(Exhausted(id, "no", fate))  # type: ignore[arg-type]

    def on_ended(self, hand: Hand, outcome: Any) -> None:
        for row in outcome.failed:
            self.state["failed"][row.id] = row.retry_count, row.delay

    def on_over(self, id: str, how: str) -> None:
        super().on_over(id, how)
        record = self.world.book.of(id)
        count, delay = self.state["failed"].pop(id, (-1, 0.0))
        if how == "failed" and record.queued and not record.is_blocked:
            self.not_before(id, delay)
            self.state[id] = count
        elif how not in {"restored", "released", "snoozed", "limited"}:
            self.state.pop(id, None)

    def on_started(self, hand: Hand, id: str) -> None:
        super().on_started(hand, id)
        known = self.state.get(id)
        if known is not None:
            found = hand.jobs[id].retry_count
            assert found == known, f"retry: {id} has retry_count {found}, it was {known}"

    def on_moved(self, id: str, how: str) -> None:
        super().on_moved(id, how)
        self.state.pop(id, None)

    def on_left(self, id: str, how: str) -> None:
        super().on_left(id, how)
        self.state.pop(id, None)
