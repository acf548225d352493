"""NodeAgent, which may be wrong of a shard: replies get lost, and nodes are paused; and what operators do to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from lowkiq.errors import Fenced, LowkiqError
from lowkiq.queue.claims import Handed, Spoiled, claim_handed
from lowkiq.queue.shard import Exhausted, Failure, Outcome, Owned, Settled
from tests.queue.model import messages
from tests.queue.model.messages import Message
from tests.queue.model.shard_rules import Ran
from tests.queue.model.shard_state import TakenJob

TTL = 15_000_000

#: What a sender knows of a call to which no reply came.
UNKNOWN = "unknown"

FATES = ("acked", "acked", "failed", "retried", "exhausted", "spoiled", "running", "running")


class NodeAgent:
    """One process. It acts as lowkiq/node does, but for the order in which it does things, which is anybody's."""

    def __init__(self, name: str, bell: str, layout: str, max_crashes: int) -> None:
        self.name, self.bell = name, bell
        self._layout = layout
        self._max_crashes = max_crashes
        self.epoch: int | None = None
        self._number = self._in_hand = 0
        self._is_unknown = self._is_open = self._has_several = False
        self._forget_claim()

    def _forget_claim(self) -> None:
        #: Id → lowest payload and retry_count of what is in hand.
        self.hand: dict[str, tuple[bytes, int]] = {}
        self.suspects: set[str] = set()
        #: Id → outcome of which Redis has not told that it knows.
        self._outcomes: dict[str, tuple[str, Any]] = {}

    # ── what it sends ───────────────────────────────────────────────────────────────────────────────────────────────

    def acquire(self, dead: Mapping[str, Ran], *, is_foster: bool) -> Message:
        return messages.acquire(self._layout, self.name, self.bell, TTL, self._max_crashes, dead, is_foster=is_foster)

    def renew(self) -> Message:
        return messages.renew(self.name, self._known_epoch, TTL)

    def release(self, what: str) -> Message:
        return messages.release(self.name, self._known_epoch, self._number, what)

    def abandon(self) -> Message:
        return messages.abandon(self.name, self._known_epoch)

    def claim(self, limit: int, most_of_a_job: int, most_in_all: int) -> list[Message]:
        """If the reply to the last claim was lost, that is given back first."""
        before = [self.release("claim")] if self._is_unknown else []
        self._number += 1
        self._is_unknown, self._is_open = True, False
        return [
            *before,
            messages.claim(self._layout, self.name, self._known_epoch, self._number, limit, most_of_a_job, most_in_all),
        ]

    def isolate(self, random: Random) -> Message:
        """A suspect has the node to itself from here on; or no longer, though it runs still."""
        id, is_alone = random.choice(sorted(self.suspects)), random.random() < 0.8
        return messages.isolate(self.name, self._known_epoch, self._in_hand, id, is_alone=is_alone)

    def settle(self, random: Random, rest: Any) -> Message:
        """Tells how jobs have ended: those that end now, and those of which it is not sure that Redis knows."""
        for id in self.hand.keys() - self._outcomes.keys():
            fate = random.choice(FATES)
            if fate != "running":
                self._outcomes[id] = (fate, self._outcome(id, fate))
        told: dict[str, list[Any]] = {"acked": [], "released": [], "failed": [], "exhausted": [], "spoiled": []}
        for id, (fate, row) in self._outcomes.items():
            told["failed" if fate == "retried" else fate].append(row)
            if fate == "spoiled":
                told["released"].append(id)
        if rest == "ack":
            told["acked"].clear()
        outcome = Outcome(
            **{name: tuple(rows) for name, rows in told.items()}, rest=rest, has_several=self._has_several
        )
        return messages.settle(self.name, self._known_epoch, self._in_hand, outcome)

    def _outcome(self, id: str, fate: str) -> Any:
        payload, retry_count = self.hand[id]
        match fate:
            case "failed" | "retried":
                return Failure(id, retry_count + 1, 60.0 if fate == "failed" else 0.0, f"{self.name} failed {id}")
            case "exhausted":
                return Exhausted(id, f"{self.name} gave up {id}")
            case "spoiled":
                return Spoiled(id, payload, "can't be read")
        return id

    @property
    def _known_epoch(self) -> int:
        assert self.epoch is not None
        return self.epoch

    # ── what it hears ───────────────────────────────────────────────────────────────────────────────────────────────

    def hear(self, message: Message, reply: Any) -> None:
        """The reply to what it sent; UNKNOWN when there came none."""
        if reply == UNKNOWN or (self.epoch is not None and message.details.get("epoch", self.epoch) != self.epoch):
            return
        if isinstance(reply, Owned):
            self.epoch, self._number, self._is_unknown, self._is_open = int(reply.epoch), 0, False, False
            self._forget_claim()
        elif reply is Fenced or reply == [0]:
            self.lose()
        elif message.script == "claim" and isinstance(reply, list):
            self._is_unknown, self._is_open = False, not reply
            self._take(message.number, reply)
        elif isinstance(reply, Settled):
            self._confirm(message.outcome)
        elif message.script == "release":
            self._forget_claim()
            if message.what == "lease":
                self.lose()
        else:
            assert not (isinstance(reply, type) and issubclass(reply, LowkiqError)) or message.script == "claim", reply

    def rung(self, handed: Handed) -> None:
        """A push has put a job into a claim of some node of this name, be it one long over."""
        if self._is_open and (self.epoch, self._number) == (int(handed.epoch), handed.number):
            self._is_open = False
            self._take(handed.number, messages.jobs(claim_handed(handed, bytes)))

    def _take(self, number: int, jobs: list[TakenJob]) -> None:
        self._in_hand = number
        self._forget_claim()
        self.hand = {id: (payloads[0][0], retry_count) for id, payloads, _, retry_count, _ in jobs}
        self.suspects = {id for id, *_, crowds in jobs if crowds is not None}
        self._has_several = any(len(job[1]) > 1 for job in jobs)

    def lose(self) -> None:
        self.epoch = None
        self._forget_claim()

    def _confirm(self, outcome: Outcome) -> None:
        if outcome.rest != "keep":
            self._forget_claim()
        for id in [id for id in self._outcomes if id in self.hand]:
            del self.hand[id], self._outcomes[id]


def act(random: Random, ids: Sequence[str], layout: str) -> Message:
    id, most = random.choice(ids), random.randint(1, 3)
    match random.choice(["revive", "bury", "drop", "perform_now"]):
        case "revive":
            return messages.action(layout, "revive", most, id)
        case "bury":
            return messages.action(layout, "bury", most, random.choice(["any", "failed"]), id)
        case "drop":
            return messages.action(layout, "drop", random.choice(["queue", "failed", "morgue"]), id)
    return messages.action(layout, "perform_now", id)
