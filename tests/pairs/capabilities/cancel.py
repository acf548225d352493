"""Cancel: what is queued is deleted, and a run that is not done does not come back."""

from __future__ import annotations

from random import Random

from tests.pairs.capability import Capability
from tests.pairs.jobs import IDS, Hand


class Cancel(Capability):
    name = "cancel"
    steps = {"cancel": 3, "push_after": 2, "release": 2}  # noqa: RUF012

    def cancel(self, random: Random) -> None:
        id = random.choice(IDS)
        if self.world.act("cancel", "due", [id]):
            self.world.book.cancelled(id)
            self.world.left(id, "cancelled")

    def push_after(self, random: Random) -> None:
        """What is pushed from then on runs after it."""
        cancelled = sorted(id for id, record in self.world.book.records.items() if record.is_cancelled)
        if cancelled:
            self.world.push_rows([self.world.new_row(random, random.choice(cancelled))])

    def release(self, random: Random) -> None:
        """A run that was stopped is not done."""
        hands = [hand for hand in self.world.hands() if self._cancelled(hand)]
        if hands:
            hand = random.choice(hands)
            told = self.world.run(hand.lease.shard.cancels(hand.lease.epoch, hand.number))
            known = self._cancelled(hand)
            assert set(told) == known, f"cancel: told of {told}, cancelled are {known}"
            ids = sorted(known)
            self.world.settle_hand(hand, self.world.outcome_of(hand, None)._replace(acked=[], letters=[], released=ids))

    def _cancelled(self, hand: Hand) -> set[str]:
        """Of a claim that a failover has lost none is: Redis has the id in another's hands."""
        records = {id: self.world.book.of(id) for id in hand.jobs}
        return {id for id, record in records.items() if record.is_cancelled and record.claim == hand.key}
