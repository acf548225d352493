"""Kinds of handler: threads end their claim whole, tasks job by job, and a process of its own may not begin at all."""

from __future__ import annotations

from random import Random

from lowkiq.queue.shard import Outcome, Released, Settled
from tests.pairs.capability import Capability


class Kinds(Capability):
    name = "kinds"
    steps = {"settle_some": 4, "settle_all": 3, "finish": 3, "give_back": 2}  # noqa: RUF012

    def settle_some(self, random: Random) -> None:
        """Some tasks of a claim are done."""
        hands = [hand for hand in self.world.hands() if len(hand.jobs) > 1]
        if hands:
            hand = random.choice(hands)
            some = random.sample(sorted(hand.jobs), random.randint(1, len(hand.jobs) - 1))
            letters = [(id, one) for id in some for each in self.world.capabilities for one in each.letters(hand, id)]
            self.world.settle_hand(hand, Outcome(acked=some, letters=letters))

    def settle_all(self, random: Random) -> None:
        """All that is not named is done."""
        if hands := self.world.hands():
            hand = random.choice(hands)
            if any(each.letters(hand, id) for each in self.world.capabilities for id in hand.jobs):
                return  # what follows is named with its job
            result = self.world.run(hand.lease.shard.settle(
                hand.lease.node, hand.lease.epoch, hand.number, Outcome(rest="ack")
            ))  # fmt: skip
            self.world.heard_of_settle(hand, Outcome(acked=list(hand.jobs)), result)

    def finish(self, random: Random) -> None:
        """A thread ends its claim and asks for the next in one call."""
        world = self.world
        hands = [hand for hand in world.own_hands() if all(len(job.payloads) == 1 for job in hand.jobs.values())]
        if not hands:
            return
        hand = random.choice(hands)
        lease = hand.lease
        if any(each.letters(hand, id) for each in world.capabilities for id in hand.jobs):
            return
        lease.number += 1
        result = world.run(lease.shard.finish(lease.node, lease.epoch, hand.number, lease.number))
        world.tell(f"{lease.node} finishes {hand.number}: {result}")
        if isinstance(result, Settled):
            assert result.acked == len(hand.jobs), f"finish has told of {result.acked} of {len(hand.jobs)}"
            world.heard_of_settle(hand, Outcome(acked=list(hand.jobs)), result)
        elif result is None:  # the usual way: a settle, and a claim of that number
            lease.number -= 1
            world.settle_hand(hand, Outcome(acked=list(hand.jobs)))
            if not lease.is_lost and world.may_claim([lease]):
                world.heard_of_claim(lease, world.run(world.claim_call(lease, *world.limits(random))))
        else:
            world.lose(lease)

    def give_back(self, random: Random) -> None:
        """A claim whose jobs have not run."""
        if hands := self.world.own_hands():
            hand = random.choice(hands)
            lease = hand.lease
            result = self.world.run(lease.shard.release(lease.node, lease.epoch, hand.number, "claim"))
            self.world.tell(f"{lease.node} releases {hand.number}: {result}")
            if isinstance(result, Released):
                lease.hands.pop(hand.number)
                for id in [id for id in hand.jobs if self.world.book.of(id).claim == hand.key]:
                    self.world.book.returned(id)
                    self.world.over(id, "released")
