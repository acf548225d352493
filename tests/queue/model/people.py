"""NodeAgent, which may be wrong of a shard: replies get lost, and nodes are paused; and what operators do to it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from random import Random
from typing import Any

from lowkiq.errors import Fenced, LowkiqError, NewerLayout
from lowkiq.queue.claims import Handed, Spoiled, claim_handed
from lowkiq.queue.shard import Crashed, Exhausted, Failure, Fate, Outcome, Owned, Settled, Snoozed
from lowkiq.testing.model.shard_rules import Ran
from lowkiq.testing.model.shard_state import TakenJob
from tests.queue.model import messages
from tests.queue.model.messages import Message

TTL = 15_000_000

#: What a sender knows of a call to which no reply came.
UNKNOWN = "unknown"

#: Claims of a shard that a node has in hand at most.
MOST = 3

#: Names of deletions that can be undone.
DELETIONS = ("1" * 16, "2" * 16)

FATES = ("acked", "acked", "failed", "retried", "exhausted", "spoiled", "running", "running")
#: Where handlers decide, too.
DECIDED = (
    *FATES, "snoozed", "snoozed", "napping", "limited", "limited", "buried", "buried", "blocked", "blocked", "blocked",
    "discarded",
)  # fmt: skip
#: Fate of a job → its list in an outcome.
ENDED = dict.fromkeys(("buried", "blocked", "discarded"), "exhausted")
LISTS = {"retried": "failed", "napping": "snoozed", "crowded": "crashed"} | ENDED
#: What is not tried again, and its fate.
ENDS: dict[str, Fate] = {"exhausted": "bury", "buried": "bury_all", "blocked": "block", "discarded": "discard"}


class Hand:
    """A claim in hand."""

    def __init__(self, jobs: Sequence[TakenJob]) -> None:
        #: Id → lowest payload and retry_count of what is in hand.
        self.jobs = {id: (payloads[0][0], retry_count) for id, payloads, _, retry_count, *_ in jobs}
        self.suspects = {id for id, *_, crowds, _, _ in jobs if crowds}
        self.has_several = any(len(job[1]) > 1 for job in jobs)
        #: Id → outcome of which Redis has not told that it knows.
        self.outcomes: dict[str, tuple[str, Any]] = {}

    def confirm(self) -> None:
        for id in [id for id in self.outcomes if id in self.jobs]:
            del self.jobs[id], self.outcomes[id]


class NodeAgent:
    """One process. It acts as lowkiq/node does, but for the order in which it does things, which is anybody's."""

    def __init__(self, name: str, bell: str, layout: str, max_crashes: int) -> None:
        self.name, self.bell = name, bell
        self._layout = layout
        self._max_crashes = max_crashes
        self.epoch: int | None = None
        self._number = 0
        #: Claims that run on though it has left their shard, by the epoch and number of each.
        self.away: dict[tuple[int, int], Hand] = {}
        self._begin()

    def _begin(self) -> None:
        # As long as some run on, their numbers are not given again.
        self._number = self._number if self.away else 0
        #: The number of the claim that found nothing, if none was asked for since.
        self._open = 0
        #: Claims in hand by their numbers.
        self.hands: dict[int, Hand] = {}
        #: What claims up to this number bring from here on is not started, as the shard was paused.
        self._rests_to = 0
        #: Numbers of claims of which no reply has come; and of those in Redis of which this node does not know.
        self._unanswered: set[int] = set()
        self._strays: set[int] = set()

    # ── what it sends ───────────────────────────────────────────────────────────────────────────────────────────────

    def acquire(self, dead: Mapping[str, Ran], *, is_foster: bool) -> Message:
        return messages.acquire(self._layout, self.name, self.bell, TTL, self._max_crashes, dead, is_foster=is_foster)

    def renew(self) -> Message:
        return messages.renew(self.name, self._known_epoch, TTL)

    def release(self, what: str, number: int | None = None) -> Message:
        return messages.release(self.name, self._known_epoch, self._number if number is None else number, what)

    def leave(self, random: Random) -> Message:
        """It leaves the shard, while some of its claims run on. To do so again says the same of those."""
        runs_on = [number for number in sorted(self.hands) if random.random() < 0.8]
        self.away |= {(self._known_epoch, number): self.hands.pop(number) for number in runs_on}
        self.hands.clear()
        away = sorted(number for epoch, number in self.away if epoch == self.epoch)
        return messages.release(self.name, self._known_epoch, self._number, "lease", TTL, away)

    def of_away(self, random: Random) -> Message:
        """Something of a claim that runs on."""
        (epoch, number), hand = random.choice(sorted(self.away.items(), key=lambda item: item[0]))
        match random.choice(["settle", "settle", "settle", "renew", "checkpoint", "isolate", "abandon"]):
            case "renew":
                return messages.renew_away(self.name, epoch, number, TTL)
            case "checkpoint" if hand.jobs:
                return messages.checkpoint(self.name, epoch, number, random.choice(sorted(hand.jobs)), b"away")
            case "isolate" if hand.suspects:
                id, is_alone = random.choice(sorted(hand.suspects)), random.random() < 0.8
                return messages.isolate(self.name, epoch, number, id, is_alone=is_alone)
            case "abandon" if random.random() < 0.3:
                return messages.abandon(self.name, epoch, number)
        rest = random.choice(["keep", "keep", "ack", "release"])
        return messages.settle(self.name, epoch, number, self._settled(hand, random, rest, DECIDED))

    def restore_away(self, dead: Mapping[str, Ran]) -> Message:
        return messages.restore_away(self.name, self._known_epoch, self._max_crashes, dead)

    def give_back(self, random: Random) -> Message:
        """Any of its claims, or the last one that it asked for."""
        return self.release("claim", random.choice([*self.hands, self._number]))

    def rest(self) -> Message:
        """It starts nothing more of what it has asked for until now."""
        self._rests_to = self._number
        return messages.rest(self.name, self._known_epoch, self._number, sorted(self.hands))

    def abandon(self) -> Message:
        return messages.abandon(self.name, self._known_epoch)

    def claim(self, random: Random, limit: int, most_of_a_job: int, most_in_all: int) -> list[Message]:
        """A claim to which no reply came is still waited for, or given back first."""
        lost = {number for number in self._unanswered if random.random() < 0.7} | self._strays
        before = [self.release("claim", number) for number in sorted(lost)]
        here = {number for epoch, number in self.away if epoch == self.epoch}  # it has not left, as far as it knows
        known = sorted({*self.hands, *here, *self._unanswered} - lost)
        self._number += 1
        self._unanswered = self._unanswered - lost | {self._number}
        self._strays.clear()
        self._open = 0
        most = (limit, most_of_a_job, most_in_all)
        # Some as for a queue with max_running: no push hands a job over to who has no place.
        is_closed = self._number % 4 == 3
        name, epoch = self.name, self._known_epoch
        claim = messages.claim(self._layout, name, epoch, self._number, *most, known, is_closed=is_closed)
        return [*before, claim]

    @property
    def suspects(self) -> list[tuple[int, str]]:
        """Each with the number of its claim."""
        return sorted((number, id) for number, hand in self.hands.items() for id in hand.suspects)

    def isolate(self, random: Random) -> Message:
        """A suspect has the node to itself from here on; or no longer, though it runs still."""
        (number, id), is_alone = random.choice(self.suspects), random.random() < 0.8
        return messages.isolate(self.name, self._known_epoch, number, id, is_alone=is_alone)

    def checkpoint(self, random: Random) -> Message:
        """A job of its keeps something, be it one that has ended."""
        number = random.choice(sorted(self.hands))
        id, value = random.choice([*sorted(self.hands[number].jobs), "a"]), b"%d:" % random.randint(0, 9)
        return messages.checkpoint(self.name, self._known_epoch, number, id, value)

    def settle(self, random: Random, rest: Any, fates: Sequence[str] = FATES) -> Message:
        """Tells how jobs have ended: those that end now, and those of which it is not sure that Redis knows."""
        number = random.choice(sorted(self.hands))
        outcome = self._settled(self.hands[number], random, rest, fates)
        return messages.settle(self.name, self._known_epoch, number, outcome)

    def _settled(self, hand: Hand, random: Random, rest: Any, fates: Sequence[str]) -> Outcome:
        for id in sorted(hand.jobs.keys() - hand.outcomes.keys()):
            fate = random.choice(fates)
            if id in hand.suspects and fate in {"retried", "running"}:
                fate = "crashed" if fate == "retried" else "crowded"
            if fate != "running":
                hand.outcomes[id] = (fate, self._outcome(hand, id, fate))
        names = ("acked", "released", "failed", "exhausted", "snoozed", "limited", "spoiled", "crashed")
        told: dict[str, list[Any]] = {name: [] for name in names}
        for id, (fate, row) in hand.outcomes.items():
            told[LISTS.get(fate, fate)].append(row)
            if fate == "spoiled":
                told["released"].append(id)
        if rest == "ack":
            told["acked"].clear()
        return Outcome(**{name: tuple(rows) for name, rows in told.items()}, rest=rest, has_several=hand.has_several)

    def finish(self, random: Random) -> Message | None:
        """Ends a claim of which every job is done, and asks for the next one; None if there is no such claim."""
        done = [
            number
            for number, hand in sorted(self.hands.items())
            if not hand.has_several and all(fate == "acked" for fate, _ in hand.outcomes.values())
        ]
        # Claims on their way may be other threads'; lost ones are given back first, so the next one goes with a settle.
        if not done or self._strays or (self._unanswered and random.random() < 0.7):
            return None
        number = random.choice(done)
        hand = self.hands[number]
        hand.outcomes = {id: ("acked", id) for id in hand.jobs}
        self._number += 1
        self._unanswered.add(self._number)
        self._open = 0
        return messages.finish(self.name, self._known_epoch, number, self._number)

    def finish_the_usual_way(self, finish: Message, most: tuple[int, int, int]) -> list[Message]:
        """The settle and the claim that do what it was to do."""
        outcome = Outcome(rest="ack", has_several=False)
        known = sorted({*self.hands, *self._unanswered} - {finish.following})
        return [
            messages.settle(self.name, finish.epoch, finish.number, outcome),
            messages.claim(self._layout, self.name, finish.epoch, finish.following, *most, known),
        ]

    def _outcome(self, hand: Hand, id: str, fate: str) -> Any:
        if fate in ENDS:
            return Exhausted(id, f"{self.name} gave up {id}", ENDS[fate])
        payload, retry_count = hand.jobs[id]
        match fate:
            case "failed" | "retried":
                return Failure(id, retry_count + 1, 60.0 if fate == "failed" else 0.0, f"{self.name} failed {id}")
            case "snoozed" | "napping" | "limited":
                return Snoozed(id, 0.0 if fate == "napping" else 30.0, "limited" if fate == "limited" else "snoozed")
            case "crashed" | "crowded":
                return Crashed(id, self._max_crashes, "crash" if fate == "crashed" else "crowd")
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
        epoch, number = message.details.get("epoch", self.epoch), message.details.get("number")
        if reply != UNKNOWN and (epoch, number) in self.away and message.script in messages.OF_CLAIMS:
            self._hear_of_away((epoch, number), message, reply)
        elif reply != UNKNOWN and (self.epoch is None or epoch == self.epoch):
            self._hear(message, reply)

    def _hear(self, message: Message, reply: Any) -> None:
        if isinstance(reply, Owned):
            self.epoch = int(reply.epoch)
            self._begin()
        elif reply is Fenced or reply == [0]:
            self.lose()
        elif message.script == "claim" and isinstance(reply, list):
            self._answered(message.number, reply)
        elif message.script == "claim" and isinstance(reply, tuple):
            self._strays.add(reply[1])
        elif message.script == "finish" and isinstance(reply, Settled):
            self.hands.pop(message.number, None)
            self._answered(message.following, [])
        elif isinstance(reply, Settled):
            self._confirm(message.number, message.outcome)
        elif message.script == "release":
            self.hands.pop(message.number, None)
            if message.what == "lease":
                self.lose()
        else:
            is_refused = isinstance(reply, type) and issubclass(reply, LowkiqError)
            assert not is_refused or message.script == "claim" or reply is NewerLayout, reply

    def rung(self, handed: Handed) -> None:
        """A push has put a job into a claim of some node of this name, be it one long over."""
        if self._open > self._rests_to and (self.epoch, self._open) == (int(handed.epoch), handed.number):
            self._answered(handed.number, messages.jobs(claim_handed(handed, bytes)))

    def _answered(self, number: int, jobs: list[TakenJob]) -> None:
        self._unanswered.discard(number)
        self._open = 0
        if jobs and number <= self._rests_to:
            self._strays.add(number)
        elif jobs:
            self.hands[number] = Hand(jobs)
        elif number == self._number:
            self._open = number

    def lose(self) -> None:
        self.epoch = None
        self.hands.clear()

    def _hear_of_away(self, name: Any, message: Message, reply: Any) -> None:
        if reply in (Fenced, [0]) or (isinstance(reply, Settled) and message.outcome.rest != "keep"):
            del self.away[name]
        elif isinstance(reply, Settled):
            self.away[name].confirm()

    def _confirm(self, number: int, outcome: Outcome) -> None:
        if outcome.rest != "keep":
            self.hands.pop(number, None)
        elif number in self.hands:
            self.hands[number].confirm()


def act(random: Random, ids: Sequence[str], layout: str) -> Message:
    id, most = random.choice(ids), random.randint(1, 3)
    match random.choice(["revive", "bury", "drop", "perform_now", "cancel"]):
        case "cancel":
            return messages.action(layout, "cancel", id)
        case "revive":
            return messages.action(layout, "revive", most, id)
        case "bury":
            return messages.action(layout, "bury", most, random.choice(["any", "failed"]), id)
        case "drop":
            return messages.action(layout, "drop", random.choice(["queue", "failed", "morgue"]), id)
    return messages.action(layout, "perform_now", id)


def pause(random: Random, layout: str) -> Message:
    match random.choice(["pause", "look", "resume", "resume"]):
        case "pause":
            return messages.pause(layout, random.choice([b"{}", b'{"who":"ann"}']))
        case "look":
            return messages.pause(layout, b"")
    return messages.resume(layout)


def hold(random: Random, ids: Sequence[str], layout: str) -> Message:
    some = random.sample(list(ids), random.randint(1, 2))
    if random.random() < 0.5:
        return messages.hold(layout, random.choice([b"{}", b'{"who":"ann"}']), some)
    return messages.let_go(layout, some)


def unblock(random: Random, ids: Sequence[str], layout: str) -> Message:
    return messages.action(layout, "unblock", random.choice(["retry", "skip"]), random.choice(ids))


def undo(random: Random, ids: Sequence[str], layout: str, kept: Collection[tuple[str, str]]) -> Message:
    """A deletion that can be undone, or the undo of one: mostly of one that keeps something."""
    name = random.choice(DELETIONS)
    if random.random() < 0.5:
        which = random.choice(["queue", "queue", "failed", "morgue"])
        return messages.action(layout, "put_away", which, name, 60, random.choice(ids))
    if kept and random.random() < 0.8:
        name = random.choice(sorted(kept))[0]
    return messages.action(layout, "put_back", name, *random.sample(list(ids), random.randint(1, len(ids))))
