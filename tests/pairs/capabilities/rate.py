"""Rate: in no window start more jobs than it allows, over all nodes; what may not start yet goes back until then."""

from __future__ import annotations

from random import Random

from lowkiq.queue.rates import Unit, rate_call
from lowkiq.queue.shard import Outcome, Snoozed
from lowkiq.rate import Rate as Limit
from tests.pairs.capability import Capability
from tests.pairs.jobs import QUEUE, SECOND
from tests.pairs.rig import NAMESPACE


class Rate(Capability):
    name = "rate"
    steps = {"ask": 6}  # noqa: RUF012

    def begin(self, random: Random) -> None:
        self.rate = Limit(random.randint(1, 3), random.choice((2.0, 10.0)))
        #: When jobs were let start; claims that have asked; and those to say of that they have started.
        self.state = {"starts": [], "asked": set(), "started": []}

    def ask(self, random: Random) -> None:
        """A node asks for the jobs of a claim, and puts back those that are to wait."""
        hands = [hand for hand in self.world.hands() if hand.key not in self.state["asked"]]
        if not hands:
            return
        hand = random.choice(hands)
        self.state["asked"].add(hand.key)
        units = [Unit("", id) for id in hand.jobs]
        call = rate_call(
            NAMESPACE,
            QUEUE,
            self.rate,
            units,
            most=len(units),
            patience=0.0,
            alone=False,
            started=self.state["started"],
        )
        told = self.world.run(call)
        self.state["started"] = []
        later = []
        for unit, answer in zip(units, told.answers, strict=True):
            if answer.word in {"start", "placed"}:
                self._start(unit, answer.at)
            else:
                later.append(Snoozed(unit.id, max(answer.at - told.now, 0.0) if answer.at else 0.01, "limited"))
        self.world.tell(f"{hand.lease.node} asks the rate of {hand.number}: {told.answers}")
        if later:
            self.world.settle_hand(hand, Outcome(limited=later))

    def _start(self, unit: Unit, at: float) -> None:
        now = max(self.world.now, round(at * SECOND))
        self.state["started"].append(unit)
        window = [one for one in self.state["starts"] if now - one < self.rate.per * SECOND]
        if self.world.is_clock_steady:
            assert len(window) < self.rate.limit, (
                f"rate: {len(window) + 1} start within {self.rate.per} s of {self.rate}"
            )
        self.state["starts"] = [*self.state["starts"][-20:], now]
