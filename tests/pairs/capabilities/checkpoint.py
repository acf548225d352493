"""Checkpoints: what a run has kept is given to the next one of the same payload, and to no other."""

from __future__ import annotations

from random import Random

from tests.pairs.capability import Capability
from tests.pairs.jobs import Hand

#: How a run is over whose payloads come back.
BACK = frozenset({"restored", "released", "failed", "snoozed", "limited", "block", "spoiled"})


class Checkpoint(Capability):
    name = "checkpoint"
    steps = {"checkpoint": 5, "give_back": 2}  # noqa: RUF012

    def begin(self, random: Random) -> None:
        #: Id → the lowest payload of the run that has kept something, and that; and the same by how of what a deletion
        #: has put by: what comes back may have it still.
        self.state = {"kept": {}, "put by": {}}

    def checkpoint(self, random: Random) -> None:
        if hands := self.world.hands():
            hand = random.choice(hands)
            id, value, lease = random.choice(sorted(hand.jobs)), b"%d:" % random.randint(0, 9), hand.lease
            is_kept = self.world.run(lease.shard.checkpoint(lease.node, lease.epoch, hand.number, id, value))
            self.world.tell(f"{lease.node} keeps {value!r} of {id}: {is_kept}")
            if is_kept is True:
                assert self.world.book.of(id).claim == hand.key, f"checkpoint: of {id}, which is over"
                self.state["kept"][id] = min(self.world.book.of(id).claimed.items(), key=lambda row: row[1])[0], value
            else:
                assert self.world.book.of(id).claim != hand.key, f"checkpoint: none kept of {id}"

    def give_back(self, random: Random) -> None:
        hands = [hand for hand in self.world.hands() if any(id in self.state["kept"] for id in hand.jobs)]
        if hands:
            hand = random.choice(hands)
            outcome = self.world.outcome_of(hand, None)._replace(acked=[], letters=[], released=sorted(hand.jobs))
            self.world.settle_hand(hand, outcome)

    def on_started(self, hand: Hand, id: str) -> None:
        payload, value = self.state["kept"].get(id, (None, None))
        found = hand.jobs[id].checkpoint
        if payload in hand.jobs[id].payloads:
            is_due = found == value or (found is None and (payload, value) in self.state["put by"].values())
            assert is_due, f"checkpoint: {id} is given {found!r}, it has kept {value!r}"
        else:
            assert found is None, f"checkpoint: {id} is given {found!r} of another"

    def on_over(self, id: str, how: str) -> None:
        record = self.world.book.of(id)
        is_back = how in BACK and self.state["kept"].get(id, (None, b""))[0] in record.queued
        if not is_back:
            self.state["kept"].pop(id, None)

    def on_moved(self, id: str, how: str) -> None:
        if how in self.state["put by"]:
            self.state["kept"].setdefault(id, self.state["put by"][how])

    def on_left(self, id: str, how: str) -> None:
        if how.startswith("kept ") and id in self.state["kept"]:
            self.state["put by"][how] = self.state["kept"][id]
        if not self.world.book.of(id).claimed and (how == "skipped" or not self.world.book.of(id).queued):
            self.state["kept"].pop(id, None)
