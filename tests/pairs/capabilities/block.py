"""Block: a job that has failed too often waits for a person, with all that is pushed to its id."""

from __future__ import annotations

from random import Random
from typing import Any

from lowkiq.queue.shard import Exhausted
from tests.pairs.capability import Capability
from tests.pairs.jobs import Hand


class Block(Capability):
    name = "block"
    steps = {"unblock": 3}  # noqa: RUF012
    fates = {"block": 4}  # noqa: RUF012

    def decide(self, fate: str, hand: Hand, id: str, outcome: dict[str, list[Any]], random: Random) -> None:
        outcome["exhausted"].append(Exhausted(id, "no", "block"))

    def unblock(self, random: Random) -> None:
        if ids := self._blocked():
            self._go_on(random.choice(ids), random.choice(("retry", "skip")))

    def _blocked(self) -> list[str]:
        return sorted(id for id, record in self.world.book.records.items() if record.is_blocked)

    def _go_on(self, id: str, how: str) -> None:
        if self.world.act(how, "blocked", [id]):
            self.world.book.unblocked(id, how)
            self.world.moved(id, how)
            if how == "skip":
                self.world.left(id, "skipped")

    def reason(self, id: str) -> str:
        return "blocked" if self.world.book.of(id).is_blocked else ""

    def free(self) -> None:
        for id in self._blocked():
            self._go_on(id, "retry")
