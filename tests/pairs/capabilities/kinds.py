"""Kinds of handler: threads end their claim whole, tasks job by job, and a process of its own may not begin at all."""

from __future__ import annotations

from random import Random

from lowkiq.queue.shard import Outcome, Settled
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
            lease, rest = hand.lease, Outcome(rest="ack", has_several=hand.has_several)
            result = self.world.run(lease.shard.settle(*lease.owner, hand.number, rest))
            self.world.heard_of_settle(hand, Outcome(acked=self.world.rest_of(hand)), result)

    def finish(self, random: Random) -> None:
        """A thread ends its claim and asks for the next in one call."""
        world = self.world
        hands = [hand for hand in world.own_hands() if not hand.has_several]
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
            rest = world.rest_of(hand)
            assert result.acked == len(rest), f"finish has told of {result.acked} of {len(rest)}"
            world.heard_of_settle(hand, Outcome(acked=rest), result)
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
            if self.world.release_claim(lease, int(hand.number)):
                lease.hands.pop(hand.number)
