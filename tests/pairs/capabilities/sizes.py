"""Sizes: few jobs to a claim, and few payloads of each (batch_size, max_payloads, concurrency)."""

from __future__ import annotations

from random import Random

from tests.pairs.capability import Capability
from tests.pairs.jobs import Hand


class Sizes(Capability):
    name = "sizes"
    steps = {"push_several": 3}  # noqa: RUF012

    def begin(self, random: Random) -> None:
        self.jobs, self.payloads, self.concurrency = random.randint(1, 3), random.randint(1, 3), random.randint(1, 4)

    def limit(self, random: Random) -> tuple[int | None, int | None]:
        return self.jobs, self.payloads

    def may_claim(self, node: str) -> bool:
        return sum(hand.lease.node == node for hand in self.world.hands()) < self.concurrency

    def push_several(self, random: Random) -> None:
        id = self.world.new_row(random).id
        self.world.push_rows([self.world.new_row(random, id) for _ in range(4)])

    def on_started(self, hand: Hand, id: str) -> None:
        if not self.world.is_working_off:
            assert len(hand.jobs) <= self.jobs, f"a claim of {len(hand.jobs)} jobs, {self.jobs} were asked for"
            count = len(hand.jobs[id].payloads)
            assert count <= self.payloads, f"{id} has {count} payloads, {self.payloads} were asked for"
