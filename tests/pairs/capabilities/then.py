"""Then: pushes that follow from a job that is done arrive, each once, and in their order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

from lowkiq.codec import split_words
from lowkiq.queue.letters import Letter, push_letter
from lowkiq.queue.shard import Outcome
from tests.pairs.following import Following
from tests.pairs.jobs import QUEUE, SHARDS, Hand, Row

#: From whom to whom.
FOLLOWS = {"a": "d", "b": "e", "c": "d"}

#: Where a letter's record has the payload: behind the id that it follows, its kind, a queue, its shards, and the id.
PAYLOAD = 5


class Then(Following):
    name = "then"
    steps = {"relay": 4, "push_first": 3}  # noqa: RUF012

    def begin(self, random: Random) -> None:
        super().begin(random)
        self.random = Random(random.getrandbits(32))
        #: What is on its way, by its payload: of whom it follows, in which order, and as what; and what has arrived.
        self.state = {"under_way": {}, "arrived": set(), "count": 0, "latest": {}}
        self.named = 0
        self._rows: dict[bytes, tuple[str, Row]] = {}

    def push_first(self, random: Random) -> None:
        self.world.push_rows([self.world.new_row(random, random.choice(sorted(FOLLOWS)))])

    def letters(self, hand: Hand, id: str) -> Iterable[bytes]:
        if id in FOLLOWS:
            row = self.world.new_row(self.random, FOLLOWS[id])
            self.named += 1
            row.payload = b"%s>%d" % (id.encode(), self.named)  # no other has it, also where payloads are equal
            self._rows[row.payload] = id, row
            yield push_letter(id, QUEUE, SHARDS, row.job)

    def on_ended(self, hand: Hand, outcome: Outcome) -> None:
        """What follows from what was not in hand any more is not sent."""
        for of, record in outcome.letters:
            payload = split_words(record)[PAYLOAD]
            if of in self.world.acked_now:
                self.state["count"] += 1
                self.state["under_way"][payload] = self.state["count"]

    def on_received(self, some: Sequence[Letter]) -> None:
        for letter in some:
            if letter.kind != b"push" or letter.job.payload in self.state["arrived"]:
                continue
            payload = letter.job.payload
            number = self.state["under_way"].pop(payload, None)
            assert number is not None, f"then: {payload!r} arrives, and nobody has sent it"
            of, row = self._rows[payload]
            way = of, row.id
            latest = self.state["latest"].get(way, 0)
            assert number > latest, f"then: {payload!r} of {of} arrives behind what followed later"
            self.state["latest"][way] = number
            self.state["arrived"].add(payload)
            self.world.tell(f"{payload!r} of {of} arrives at {row.id}")
            self.world.accept([row])

    def check(self) -> None:
        if self.world.is_working_off and not self.world.layout.is_moving:
            under_way = self.state["under_way"]
            waits = self.world.rig.redis.exists(*(f"{shard.prefix}outbox" for shard in self.world.shards))
            assert waits or not under_way, f"I3: {sorted(under_way)} never arrive"
