"""Nodes: they take shards, claim, and settle, as real ones do; in the book is what Redis has told them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

from lowkiq.errors import BeingResharded, Fenced, Moved, Unsettled
from lowkiq.node.leases.homes import Home, Homes
from lowkiq.queue.call import Call
from lowkiq.queue.claims import Claim
from lowkiq.queue.shard import Held, Outcome, Owned, Released, Settled, Shard
from lowkiq.shared_page import DeadNode
from tests.pairs.ground import Ground
from tests.pairs.jobs import Hand, Lease, Taken, fates, spelt, texts, told

#: Seconds of a lease: longer than any history, as nobody is paused past it unless a capability says so.
TTL = 1e8
#: A number that no claim reaches.
MANY = 1_000_000
#: Claims of a shard that are in hand at a time.
MOST_HANDS = 3


class Nodes(Ground):
    """What nodes do."""

    def acquire(
        self, shard: Shard, node: str = "", dead: Sequence[DeadNode] = (), call: Call[Any] | None = None
    ) -> Lease | None:
        """A node takes a shard that is free, or whose owner is known to be dead."""
        node = node or self.nodes[shard.index % len(self.nodes)]
        self.leave_again(shard, [one.name for one in dead])
        result = self.run(call or shard.acquire(node, TTL, self.max_crashes, dead))
        if isinstance(result, Held) and not call and shard.prefix not in self.held_by_movers:
            # Redis has lost who owns it now, and whoever owned it before is not there any more.
            result = self.run(shard.acquire(node, TTL, self.max_crashes, [DeadNode(result.holder, ())]))
        self.tell(f"{node} acquires {shard.prefix}{' of the dead' if dead else ''}: {told(result)}")
        return self.owned(shard, node, result, [one.name for one in dead]) if isinstance(result, Owned) else None

    def owned(self, shard: Shard, node: str, owned: Owned, dead: Iterable[str] = ()) -> Lease:
        """A node owns a shard. What its last owner had in hand, and did not take along, is queued again."""
        before, epoch = self.leases.pop(shard.prefix, None), int(owned.epoch)
        self._note_epoch(shard, epoch)
        if before:
            before.is_lost = True
            self.ghosts = [*self.ghosts[-3:], before]
        self.restored(shard, set(dead))
        lease = self.leases[shard.prefix] = Lease(shard, node, owned.epoch)
        return lease

    def leave(self, lease: Lease, away: Iterable[Hand] = ()) -> Any:
        """A node gives a shard back, and takes along what runs; the rest of its claims is queued again."""
        shard, taken = lease.shard, list(away)
        numbers = [hand.number for hand in taken]
        result = self.run(shard.release(*lease.owner, lease.number, "lease", TTL, numbers))
        self.tell(f"{lease.node} leaves {shard.prefix}, and takes along {numbers}: {told(result)}")
        if not isinstance(result, Released):
            self.lose(lease)
            return result
        self.lose(lease)
        self.ghosts = [*self.ghosts[-3:], Lease(shard, lease.node, lease.epoch, lease.number, {
            number: hand for number, hand in lease.hands.items() if hand not in taken
        }, is_lost=True)]  # fmt: skip
        self.away += taken
        self._left(shard, lease.epoch)
        return result

    def leave_again(self, shard: Shard, dead: Iterable[str] = ()) -> None:
        """Who has left a shard and still runs jobs of it leaves it again: a failover may have lost that."""
        left = {hand.key[1]: hand.lease for hand in self.away if hand.key[0] == shard.prefix}
        for epoch, lease in left.items():
            if self.has_failed_over and lease.node not in dead:
                numbers = [hand.key[2] for hand in self.away if hand.key[:2] == (shard.prefix, epoch)]
                result = self.run(shard.release(lease.node, epoch, MANY, "lease", TTL, numbers))
                self.tell(f"{lease.node} leaves {shard.prefix} again, and keeps {numbers} of {epoch}: {told(result)}")
                if isinstance(result, Released):
                    self._left(shard, epoch)

    def _left(self, shard: Shard, epoch: str) -> None:
        """What its owner did not take along is queued again: also what it has settled, if a failover has lost that."""
        kept = {hand.key for hand in self.away}
        for id, record in list(self.book.records.items()):
            if record.claim and record.claim[:2] == (shard.prefix, epoch) and record.claim not in kept:
                self.book.returned(id)
                self.over(id, "released")

    def _note_epoch(self, shard: Shard, epoch: int) -> None:
        known = self.owners.get(shard.prefix, 0)
        if self.has_failed_over and not self.is_clock_steady:
            known = 0  # what Redis has lost, and its clock does not know either, nobody knows
        assert epoch > known, f"I2: {shard.prefix} has epoch {epoch} after {known}"
        self.owners[shard.prefix] = epoch

    def restored(self, shard: Shard, dead: set[str]) -> None:
        """
        What was in hand of a shard may be queued again, or buried: Redis, who counts deaths, tells which. What runs
        away from its shard stays in hand, unless its node is known to be dead.
        """
        ids = [id for id, record in self.book.records.items() if record.claim and record.claim[0] == shard.prefix]
        if not ids:
            return
        claimed, morgue = self.in_hand_and_dead()
        for hand in self.away:
            if hand.lease.shard.prefix == shard.prefix and hand.lease.node not in dead:
                lost = {id for id in hand.jobs if self.book.of(id).claim == hand.key} - claimed.keys()
                assert not lost, f"I1: {sorted(lost)} of {hand.lease.node}, who lives, were taken from it"
        for id in [id for id in ids if id not in claimed]:
            is_buried = bool(morgue.get(id, {}).keys() & self.book.of(id).claimed.keys())
            if is_buried:
                self.book.ended(id, "bury_all")
            else:
                self.book.returned(id)
            self.over(id, "buried" if is_buried else "restored")
        self.away = [hand for hand in self.away if any(self.book.of(id).claim == hand.key for id in hand.jobs)]

    def over(self, id: str, how: str) -> None:
        for capability in self.capabilities:
            capability.on_over(id, how)

    def lose(self, lease: Lease) -> None:
        """A node hears that it owns a shard no more."""
        if self.leases.get(lease.shard.prefix) is lease:
            del self.leases[lease.shard.prefix]
        lease.is_lost = True

    def claim(self, random: Random) -> None:
        shard = random.choice(self.shards)
        lease = self.leases.get(shard.prefix) or self.acquire(shard)
        if lease and len(lease.hands) < MOST_HANDS and self.may_claim([lease]):
            self.heard_of_claim(lease, self.run(self.claim_call(lease, *self.limits(random))))

    def limits(self, random: Random) -> tuple[int, int]:
        """How many jobs a claim takes, and payloads of each."""
        limit, payloads = random.choice((1, 2, 4)), 100
        for capability in self.capabilities:
            few, least = capability.limit(random)
            limit, payloads = min(few or limit, limit), min(least or payloads, payloads)
        return limit, payloads

    def may_claim(self, leases: Iterable[Lease]) -> list[Lease]:
        """Those of which their nodes may claim now."""
        for one in self.capabilities:
            one.on_round()
        return [lease for lease in leases if all(one.may_claim(lease.node) for one in self.capabilities)]

    def claim_call(self, lease: Lease, limit: int = 1_000, payloads: int = 1_000) -> Call[Claim]:
        lease.number += 1
        known, is_closed = sorted(lease.hands), any(getattr(one, "is_closed", False) for one in self.capabilities)
        return lease.shard.claim(
            lease.node, lease.epoch, lease.number, limit, payloads, bytes, known=known, is_closed=is_closed
        )

    def heard_of_claim(self, lease: Lease, found: Any) -> Hand | None:
        """What a node does with the reply to a claim."""
        hand = self._heard_of_claim(lease, found)
        for capability in self.capabilities:
            capability.on_claimed(lease.node, hand)
        return hand

    def _heard_of_claim(self, lease: Lease, found: Any) -> Hand | None:
        name = f"{lease.node} claims {lease.shard.prefix} {lease.number}"
        if not isinstance(found, Claim):
            self.tell(f"{name}: {told(found)}")
            if isinstance(found, Fenced | Moved):
                self.lose(lease)
            elif isinstance(found, Unsettled):
                self.release_claim(lease, int(str(found)))
            return None
        self.tell(f"{name}: {' '.join(f'{job.id}={texts(job.payloads)}' for job in found.jobs) or 'nothing'}")
        if not found.jobs:
            return None
        hand = Hand(lease, lease.number)
        for job in found.jobs:
            payloads = list(job.payloads)
            self.book.started(job.id, payloads, hand.key)
            known = 0 if self.has_failed_over and not self.is_clock_steady else self.epochs.get(job.id, 0)
            assert int(lease.epoch) >= known, f"I2: {job.id} runs under an earlier epoch"
            self.epochs[job.id] = int(lease.epoch)
            hand.jobs[job.id] = Taken(
                payloads, job.retry_count, job.perform_in, job.checkpoint, job.tags, bool(found.crowds), self.now
            )
        hand.has_several = any(len(job.payloads) > 1 for job in hand.jobs.values())
        lease.hands[hand.number] = hand
        for id in hand.jobs:
            for capability in self.capabilities:
                capability.on_started(hand, id)
        return hand

    def release_claim(self, lease: Lease, number: int) -> bool:
        """Gives back a claim that has not run, or of which a node knows nothing. Returns whether it was taken back."""
        result = self.run(lease.shard.release(lease.node, lease.epoch, number, "claim"))
        self.tell(f"{lease.node} gives back {number}: {told(result)}")
        if isinstance(result, Released):
            claim = lease.shard.prefix, lease.epoch, number
            for id in [id for id, record in self.book.records.items() if record.claim == claim]:
                self.book.returned(id)
                self.over(id, "released")
        return isinstance(result, Released)

    def settle(self, random: Random) -> None:
        if hands := self.hands():
            hand = random.choice(hands)
            self.settle_hand(hand, self.outcome_of(hand, random))

    def outcome_of(self, hand: Hand, random: Random | None, rest: Any = "keep") -> Outcome:
        """How the jobs of a claim end; without `random` all are done."""
        names = ("acked", "released", "failed", "exhausted", "snoozed", "limited", "spoiled", "letters", "stopped")
        told: dict[str, list[Any]] = {name: [] for name in names}
        fates = [(None, "ack", 10), *((one, *fate) for one in self.capabilities for fate in one.fates.items())]
        for id in hand.jobs:
            ((one, fate, _),) = random.choices(fates, [times for *_, times in fates]) if random else [fates[0]]
            if one is not None and random is not None:
                one.decide(fate, hand, id, told, random)
                continue
            told["acked"].append(id)
            told["letters"] += [(id, letter) for each in self.capabilities for letter in each.letters(hand, id)]
        return Outcome(**told, rest=rest)  # type: ignore[arg-type]

    def settle_hand(self, hand: Hand, outcome: Outcome) -> Any:
        lease = hand.lease
        return self.heard_of_settle(hand, outcome, self.run(lease.shard.settle(*lease.owner, hand.number, outcome)))

    def heard_of_settle(self, hand: Hand, outcome: Outcome, result: Any) -> Any:
        lease = hand.lease
        self.tell(f"{lease.node} settles {lease.shard.prefix} {hand.number} {spelt(outcome)}: {told(result)}")
        if isinstance(result, Settled):
            self._settled(hand, outcome)
        elif isinstance(result, Moved) and self._is_away(hand):
            self._follow(hand, str(result))
        elif not isinstance(result, BeingResharded) or not self._is_away(hand):  # else it tells it again, later
            assert isinstance(result, Fenced | Moved), f"a settle was told {result!r}"
            self.away = [one for one in self.away if one is not hand]
            self.lose(lease)
        return result

    def rest_of(self, hand: Hand) -> list[str]:
        """Those that a settle ends which names none: also what was settled before, if a failover has lost that."""
        known = {id for one in self.hands() if one.key == hand.key for id in one.jobs}
        lost = [id for id, record in self.book.records.items() if record.claim == hand.key and id not in known]
        return [*hand.jobs, *lost]

    def _is_away(self, hand: Hand) -> bool:
        return any(one is hand for one in self.away)

    def _follow(self, hand: Hand, layout: str) -> None:
        """A node looks for a claim that has outlived its hold of the shard where a reshard has moved it."""
        homes = Homes(hand.lease.shard, 0)
        homes.all = (Home(hand.lease.shard, hand.number),)
        homes.follow(homes.all[0], layout, hand.jobs)
        self.away = [one for one in self.away if one is not hand]
        for home in homes.all:
            lease = Lease(home.shard, hand.lease.node, hand.lease.epoch, is_lost=True)
            self.away.append(
                Hand(lease, home.number, {id: hand.jobs[id] for id in home.ids or ()}, hand.key, hand.has_several)
            )

    def _settled(self, hand: Hand, outcome: Outcome) -> None:
        known = {id for id, record in self.book.records.items() if record.claim == hand.key}
        self.acked_now = known & set(outcome.acked)
        over: dict[str, str] = {}
        for id, how, payload in fates(outcome):
            if id in known and self.book.of(id).claim == hand.key:
                is_cancelled = how != "acked" and self.book.of(id).is_cancelled  # whatever its run has asked for
                self._end(id, how, payload)
                if self.book.of(id).claim != hand.key:
                    over[id] = "cancelled" if is_cancelled else how
        for one in self.capabilities:
            one.on_ended(hand, outcome)
        for id, how in over.items():
            self.over(id, how)
        hand.jobs = {id: taken for id, taken in hand.jobs.items() if self.book.of(id).claim == hand.key}
        if not hand.jobs:
            hand.lease.hands.pop(hand.number, None)
            self.away = [one for one in self.away if one is not hand]

    def _end(self, id: str, how: str, payload: bytes) -> None:
        if how == "spoiled":
            self.book.spoiled(id, payload)
        elif how == "acked":
            self.book.acked(id)
        elif how in {"bury", "bury_all", "block", "discard"}:
            self.book.ended(id, how)
        else:
            self.book.returned(id)
