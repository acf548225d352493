"""
Witness: sees what each message changed in Redis, and holds it against the design's invariants I1 to I8. It knows
nothing of the model: what it says can be read from the shard before and after, and from what it has seen earlier.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import replace
from typing import Any

from lowkiq.errors import Fenced, Late, NewerLayout, ShardsCountMismatch
from lowkiq.queue.shard import Outcome, Owned, Restored
from lowkiq.testing.model.shard_rules import MOST_CROWDS, Ran, ran_apart, suspected
from lowkiq.testing.model.shard_state import ClaimName, Entry, ShardState, all_asked, lowest_first
from tests.queue.model.lanes_witness import LanesWitness
from tests.queue.model.messages import FENCED, OF_CLAIMS, Message

#: An id and one of its payloads.
Token = tuple[str, bytes]


class Witness:
    """One history of one shard."""

    def __init__(self, max_crashes: int) -> None:
        self._max_crashes = max_crashes
        self._epochs: list[int] = []
        self._outcomes: set[tuple[int, int, str]] = set()
        self._deaths: Counter[str] = Counter()
        self._crowds: Counter[str] = Counter()
        #: The time by Redis's clock.
        self.now = 0
        #: Deaths in all, and in crowds, of what deletions have kept.
        self._kept_deaths: dict[tuple[str, str], tuple[int, int]] = {}
        #: What was said of pushes that were applied, by their stamps.
        self._replies: dict[tuple[str, int], Any] = {}
        self._pushed: Counter[Token] = Counter()
        self._ended: Counter[Token] = Counter()
        self._lanes = LanesWitness()

    def see(self, message: Message, reply: Any, before: ShardState, after: ShardState) -> None:
        """Raises AssertionError naming the invariant that does not hold."""
        self._i8_wrong_layout_changes_nothing(message, reply, before, after)
        self._i1_only_the_owner_changes_the_claim(message, reply, before, after)
        self._i2_epochs_rise(reply, before, after)
        self._i4_an_id_is_in_one_claim(message, before, after)
        self._i5_settle_applies_once(message, reply, before, after)
        is_repeated = self._i5_a_push_applies_once(message, reply, before, after)
        self._i6_lowest_payloads_first(before, after)
        self._i7_deaths_are_bounded(message, reply, before, after)
        self._what_is_cancelled_does_not(before, after)
        self._i3_every_payload_is_in_one_place(message, reply, before, after, is_repeated=is_repeated)
        self._what_is_parked_comes_back(before, after)
        self._nothing_starts_while_stopped(message, reply, before, after)
        self._what_is_blocked_waits_for_a_person(message, before, after)
        self._lanes.see(message, reply, before, after)
        self._fewer_runs(message, before, after)
        assert after.checkpoints.keys() <= after.queued.keys() | after.claimed.keys(), "a checkpoint of nothing"
        assert not (after.open and after.waiting == math.inf and after.queued), (
            "an offer for more than nothing is wrong"
        )
        assert not (after.open and after.claims), "an offer while something runs is wrong"

    # ── pauses ──────────────────────────────────────────────────────────────────────────────────────────────────────

    @staticmethod
    def _nothing_starts_while_stopped(message: Message, reply: Any, before: ShardState, after: ShardState) -> None:
        if message.script == "claim" and message.is_closed and after != before:  # else it came late, and was refused
            assert not after.open, f"closed: {message} left an open claim"
        if after.paused:
            assert not after.open, f"paused: {message} left an open claim"
        if before.paused:
            claims, known = _by_leases(after), _by_leases(before)
            new = {name for name in claims if _is_more(claims[name], known.get(name, {}))}
            assert not new, f"paused: {message} has claimed {new}"
        if after.rests is not None and before.rests is None and not isinstance(reply, Owned):
            assert message.script == "rest", f"paused: {message} says that its owner rests"
            left = set(after.own) - set(message.in_hand)
            assert not left, f"paused: {message} rests with claims {left}, which may still start"
        taken = (after.claimed.keys() - before.claimed.keys()) & before.held.keys()
        assert not taken, f"held: {message} has claimed {taken}"
        assert message.script == "let_go" or before.held.keys() <= after.held.keys(), f"held: {message} let go"
        assert not (after.held and after.open), f"held: {message} left an open claim"
        assert after.rests is None or after.paused, f"paused: {message} left an owner at rest"

    # ── I1 ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _i1_only_the_owner_changes_the_claim(
        self, message: Message, reply: Any, before: ShardState, after: ShardState
    ) -> None:
        self._i1_who_has_a_claim_that_is_away_changes_it(message, reply, before, after)
        if _is_of_away(message, before):
            owners = [(state.node, state.epoch, state.until, state.claim_number) for state in (before, after)]
            assert owners[0] == owners[1], f"I1: {message} of a claim that is away changed the owner"
        elif message.script in FENCED:
            if (message.node, message.epoch) != (before.node, before.epoch):
                assert after == before, f"I1: {message} changed a shard that {before.node} owns at {before.epoch}"
                # Of finish, the settle and the claim that follow find out why.
                told_nothing = message.script == "finish" and reply is None
                assert reply is Fenced or reply == [0] or told_nothing, (
                    f"I1: {message} of another's shard was told {reply}"
                )
        elif message.script != "acquire":
            is_offered = message.script == "push" and before.open and before.bell in before.idle
            assert after.claims == before.claims or is_offered, f"I1: {message} changed a claim"
            assert (after.node, after.epoch) == (before.node, before.epoch), f"I1: {message} changed the owner"
        elif not isinstance(reply, Owned):
            assert after.claims == before.claims, f"I1: {message} was refused and changed a claim"

    def _i1_who_has_a_claim_that_is_away_changes_it(
        self, message: Message, reply: Any, before: ShardState, after: ShardState
    ) -> None:
        for name, away in before.away.items():
            is_over = away.until <= self.now or away.node in message.details.get("dead", ())
            if isinstance(reply, Owned | Restored) and is_over:
                assert name not in after.away, f"I1: {message} left a claim of {away.node}, which is gone"
            elif _is_of_away(message, before) and name == _name(message, before):
                assert name in after.away or message.script == "settle", f"I1: {message} ended a claim"
            else:
                assert after.claims.get(name) == before.claims[name], f"I1: {message} changed the claim {name}"
                known = replace(away, until=min(away.until, self.now + away.ttl))  # a clock may have been set back
                assert after.away.get(name) in (away, known), f"I1: {message} changed the lease of {name}"

    # ── I2 ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _i2_epochs_rise(self, reply: Any, before: ShardState, after: ShardState) -> None:
        assert after.epoch >= before.epoch, f"I2: from epoch {before.epoch} to {after.epoch}"
        assert after.node is None or before.node == after.node or isinstance(reply, Owned), "I2: an owner unasked"
        if isinstance(reply, Owned):
            assert not self._epochs or int(reply.epoch) > self._epochs[-1], (
                f"I2: {reply.epoch} after {self._epochs[-1]}"
            )
            self._epochs.append(int(reply.epoch))

    # ── I3 ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _i3_every_payload_is_in_one_place(
        self, message: Message, reply: Any, before: ShardState, after: ShardState, *, is_repeated: bool
    ) -> None:
        pushed = Counter() if is_repeated else _pushed(message, reply)
        ended = _ended(message, reply, before) | _cancelled(message, reply, before, after)
        were, are = _places(before), _places(after)
        ended |= self._superseded(message, before, after, were + Counter(set(pushed)) - ended)
        for token in were.keys() | are.keys() | pushed.keys() | ended.keys():
            most = were[token] + min(pushed[token], 1) - ended[token]
            assert are[token] <= most, f"I3: {message} left {token} in {are[token]} places, from {were[token]}"
            # Only equal payloads of an id become one.
            assert are[token] >= min(most, 1), f"I3: {message} lost {token}"
        self._pushed += pushed
        self._ended += ended

    def lapse(self, state: ShardState) -> None:
        """What deletions have kept is gone."""
        self._ended += _kept(state)
        self._kept_deaths.clear()

    def at_the_end(self, state: ShardState) -> None:
        """I3 over the whole history."""
        are = _places(state)
        for token, pushed in self._pushed.items():
            found = are[token] + self._ended[token]
            assert 1 <= found <= pushed, f"I3: {token} was pushed {pushed} times and found {found} times"
        assert are.keys() | self._ended.keys() <= self._pushed.keys(), "I3: a payload that nobody pushed"

    # ── I4 ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    @staticmethod
    def _i4_an_id_is_in_one_claim(message: Message, before: ShardState, after: ShardState) -> None:
        ids = Counter(id for claim in after.claims.values() for id in claim)
        assert all(count == 1 for count in ids.values()), f"I4: {message} left ids in two claims: {ids}"
        new = {number for number in after.claims if _is_more(after.claims[number], before.claims.get(number, {}))}
        if new and message.script == "push":
            open = (before.epoch, before.claim_number)
            assert before.open == open, f"I4: {message} put jobs into claim {before.open} of {open}"
            assert not before.claims, f"I4: {message} was handed over beside {before.claims}"
        elif new and message.script == "release":
            for name in new:
                assert isinstance(name, tuple), f"I4: {message} made claim {name}"
                was = before.claims[name[1]]
                assert name[0] == before.epoch and after.claims[name] == was, f"I4: {message} changed {name}"
        elif new:
            assert message.script == "claim", f"I4: {message} put jobs into claims {new}"
            assert new == {message.number}, f"I4: {message} put jobs into claims {new}"
            assert message.number > before.claim_number, f"I4: claim {message.number} after {before.claim_number}"
            assert after.claim_number == message.number, f"I4: {message} is kept as {after.claim_number}"
            assert set(before.own) <= set(message.known), f"I4: {message} beside {before.claims.keys()}"
        if message.script == "finish" and after != before:
            open = (message.epoch, message.following)
            assert before.claim_number == message.number, f"I4: {message} ended claim {before.claim_number}"
            assert message.following > message.number, f"I4: claim {message.following} after {message.number}"
            assert (after.open, after.claim_number) == (open, open[1]), f"I4: {message} opened {after.open}"
            assert not after.claims, f"I4: {message} beside {after.claims.keys()}"
            assert not after.queued, f"I4: {message} opened an offer for more than nothing"
        if message.script in {"claim", "push", "push_apart", "settle", "finish", "isolate"} or (
            message.script == "release" and message.what == "claim"
        ):
            others = before.claims.keys() - {_name(message, before)}
            assert all(after.claims.get(number) == before.claims[number] for number in others), (
                f"I4: {message} changed another claim"
            )
        if after.epoch == before.epoch and after.node == before.node:
            assert after.claim_number >= before.claim_number, f"I4: {message} made an earlier claim the last"

    # ── I5 ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _i5_a_push_applies_once(self, message: Message, reply: Any, before: ShardState, after: ShardState) -> bool:
        """Returns whether it was applied before. After the time that its sender waits it changes nothing, either."""
        if message.script not in {"push", "push_apart"}:
            return False
        is_repeated = message.stamp in self._replies
        if is_repeated or self.now > message.stamp[1]:
            assert after == before, f"I5: {message} came twice, or too late, and changed the shard"
        if is_repeated and reply is not Late:
            assert reply in (self._replies[message.stamp], [0] * len(message.rows)), f"I5: {message} was told {reply}"
        if not isinstance(reply, type):
            self._replies.setdefault(message.stamp, reply)
        return is_repeated

    def _i5_settle_applies_once(self, message: Message, reply: Any, before: ShardState, after: ShardState) -> None:
        if message.script == "finish" and reply is None:
            assert after == before, f"I5: {message} changed what it was not to finish"
        if message.script not in {"settle", "finish"} or reply is Fenced or reply is None:
            return
        name = _name(message, before)
        claim = before.claims.get(name, {})
        if not claim and message.script == "settle":
            # It may have the owner rung once more, in vain.
            assert replace(after, waiting=before.waiting) == before, f"I5: {message} changed {before.claims.keys()}"
            assert reply[:3] == (0, 0, 0), f"I5: {message} says that it moved {reply}"
        spoiled = {row.id for row in _outcome(message).spoiled}
        for id in claim.keys() - after.claims.get(name, {}).keys():
            outcome = (message.epoch, message.number, id)
            assert outcome not in self._outcomes, f"I5: {id} ended twice in {message}"
            self._outcomes.add(outcome)
        moved = [after.counters[name] - before.counters[name] for name in ("processed", "failed")]
        assert moved == [reply.acked, reply.failed], f"I5: {message} counted {moved}, and told {reply}"
        assert sum(moved) <= len(claim) + len(spoiled), f"I5: {message} counted more than was claimed"

    # ── I6 ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    @staticmethod
    def _i6_lowest_payloads_first(before: ShardState, after: ShardState) -> None:
        for id in after.claimed.keys() - before.claimed.keys():
            waiting = after.queued[id].payloads if id in after.queued else {}
            taken = after.claimed[id].payloads
            if waiting:
                highest, lowest = lowest_first(taken)[-1], lowest_first(waiting)[0]
                assert (highest[1], highest[0]) < (lowest[1], lowest[0]), (
                    f"I6: {id}: {highest} was taken before {lowest}"
                )
            was = before.queued[id].payloads if id in before.queued else taken
            assert all(was[payload] == score for payload, score in taken.items()), (
                f"I6: {id} was claimed with new scores"
            )

    # ── I7 ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _i7_deaths_are_bounded(self, message: Message, reply: Any, before: ShardState, after: ShardState) -> None:
        self._i7_count(message, reply, before, after)
        for number, id in before.cancelled:
            if id not in _by_leases(after).get(_lease(before, number), {}):
                self._acquit(id)
        assert after.crashes == dict(self._deaths), f"I7: deaths {dict(self._deaths)}, counted {after.crashes}"
        assert after.crowds == dict(self._crowds), f"I7: in crowds {dict(self._crowds)}, counted {after.crowds}"
        if suspects := self._crowds.keys() & after.claimed.keys() - before.claimed.keys():
            assert [*suspects] in [[*claim] for claim in after.claims.values()], f"I7: {suspects} claimed with others"

    def _i7_count(self, message: Message, reply: Any, before: ShardState, after: ShardState) -> None:
        if isinstance(reply, Owned | Restored):
            died = self._died(message, reply, before)
            for name, ran in died.items():
                suspects = suspected(before, name, ran)
                for id in before.claims[name]:
                    if (name, id) not in before.cancelled:
                        was_apart = ran_apart(name, ran)
                        self._i7_is_judged_alone(name, id, before, after, ran=id in suspects, was_apart=was_apart)
            assert died or reply.buried == 0, "I7: buried, and nobody had died"
        elif message.script in {"settle", "finish"} and reply is not Fenced:
            outcome = _outcome(message)
            self._i7_crashes(outcome, before, after)
            back = _given_back(message, before) | {row.id for row in (*outcome.limited, *outcome.crashed)}
            for id in before.claimed.keys() - after.claimed.keys() - back:
                self._acquit(id)
        else:
            self._i7_of_actions(message, before, after)

    def _died(self, message: Message, reply: Any, before: ShardState) -> dict[ClaimName, Ran]:
        """The claims of those who have died, and what of these is known to have run."""
        died: dict[ClaimName, Ran] = {}
        if isinstance(reply, Owned) and before.node not in {None, message.node} and not before.is_abandoned:
            died = dict.fromkeys(before.own, message.dead.get(before.node))
        for name, away in before.away.items():
            if not away.is_left and (away.node in message.dead or away.until <= self.now):
                died[name] = message.dead.get(away.node)
        return died

    def _i7_of_actions(self, message: Message, before: ShardState, after: ShardState) -> None:
        if message.script in {"drop", "bury", "cancel", "put_away"}:
            gone = before.queued.keys() - after.queued.keys()
            # Those of a job in hand stay.
            for id in gone - before.claimed.keys():
                if message.script == "put_away":
                    self._kept_deaths[message.name, id] = (self._deaths[id], self._crowds[id])
                self._acquit(id)
        elif message.script == "put_back":
            for key in before.kept.keys() - after.kept.keys():
                self._i7_come_back(key[1], *self._kept_deaths.pop(key, (0, 0)), is_running=key[1] in before.claimed)

    def _i7_crashes(self, outcome: Outcome, before: ShardState, after: ShardState) -> None:
        """Who has killed a process of its own is buried at max_crashes, and not before."""
        for row in outcome.crashed:
            is_cancelled = row.id in {id for _, id in before.cancelled}
            if row.id in before.claimed.keys() - after.claimed.keys() and not is_cancelled:
                self._add_death(row.id, was_alone=row.fate == "crash")
                deaths, most = self._deaths, self._max_crashes
                if row.fate == "crowd":
                    deaths, most = self._crowds, MOST_CROWDS
                if deaths[row.id] >= most:
                    assert row.id in after.morgue, f"I7: {row.id} has killed {deaths[row.id]} processes"
                    self._acquit(row.id)
                else:
                    assert row.id in after.queued, f"I7: {row.id} has killed but {deaths[row.id]} processes"

    def _add_death(self, id: str, *, was_alone: bool) -> None:
        (self._deaths if was_alone or id not in self._deaths else self._crowds)[id] += 1

    def _i7_come_back(self, id: str, deaths: int, crowds: int, *, is_running: bool) -> None:
        """With a job that is put back, unless its id runs, or is suspected again."""
        for known, came in ((self._deaths, deaths), (self._crowds, crowds)):
            if came and not is_running and id not in known:
                known[id] = came

    def _acquit(self, id: str) -> None:
        self._deaths.pop(id, None)
        self._crowds.pop(id, None)

    def _i7_is_judged_alone(
        self, number: ClaimName, id: str, before: ShardState, after: ShardState, *, ran: bool, was_apart: bool
    ) -> None:
        """Only what ran is suspected, and none of them is buried that did not run alone; such deaths are bounded."""
        entry = before.claims[number][id]
        alone = before.alone == (number, id) if isinstance(number, int) else before.away[number].alone == id
        was_alone = ran and alone and not was_apart
        if ran:
            self._add_death(id, was_alone=was_alone)
        died = self._deaths.get(id, 0)
        if (was_alone and died >= self._max_crashes) or self._crowds.get(id, 0) >= MOST_CROWDS:
            grave = after.morgue[id].payloads if id in after.morgue else {}
            assert entry.payloads.keys() <= grave.keys(), f"I7: {id} has killed {died} nodes and is to run again"
            self._acquit(id)
        else:
            queued = after.queued[id].payloads if id in after.queued else {}
            is_back = queued if after.rules.get(id, (None, ""))[1] else entry.payloads.keys() <= queued.keys()
            assert is_back, f"I7: {id}, {was_alone=}, has killed but {died} nodes"

    # ── I8 ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _i8_wrong_layout_changes_nothing(
        self, message: Message, reply: Any, before: ShardState, after: ShardState
    ) -> None:
        if isinstance(reply, Owned):
            assert after.layout == message.layout, f"I8: {message} left layout {after.layout}"
        else:
            assert before.layout in {None, after.layout}, f"I8: layout {before.layout} became {after.layout}"
        if before.layout is None or message.layout in {None, before.layout}:
            return
        if not _may_act(message, before):
            known = after.senders if message.script == "push_apart" else before.senders  # what it has left it has left
            assert replace(before, senders=known) == after, (
                f"I8: {message} with layout {message.layout} changed a shard of {before.layout}"
            )
            has_left_all = message.script == "push_apart" and not any(reply)
            is_told_again = message.script == "push" and reply == self._replies.get(message.stamp)
            assert has_left_all or is_told_again or reply in [ShardsCountMismatch, NewerLayout, Fenced, Late], (
                f"I8: {message} was told {reply}"
            )
        elif message.script == "claim":
            assert after == before, f"I8: {message} claimed of layout {before.layout}"
        else:
            assert reply not in [ShardsCountMismatch, NewerLayout], f"I8: {message} was told {reply}"

    # ── what waits behind a run ─────────────────────────────────────────────────────────────────────────────────────

    @staticmethod
    def _what_is_parked_comes_back(before: ShardState, after: ShardState) -> None:
        for id, entry in after.queued.items():
            waits_for = after.claimed.keys() | after.held.keys()
            assert not entry.waits or id in waits_for, f"what is parked waits behind a claim, and {id} does not"
        for id, entry in before.queued.items():
            is_over = id in before.claimed.keys() - after.claimed.keys()
            if entry.waits and is_over and id in after.queued and id not in after.held:
                assert not after.queued[id].waits, f"{id} is parked though its run is over"

    # ── what is blocked ─────────────────────────────────────────────────────────────────────────────────────────────

    @staticmethod
    def _what_is_blocked_waits_for_a_person(message: Message, before: ShardState, after: ShardState) -> None:
        for id in [id for id, entry in before.queued.items() if entry.blocked]:
            # It may have been put back while its id ran.
            assert id not in after.claimed.keys() - before.claimed.keys(), f"what is blocked runs: {id}"
            if id in after.queued and message.script != "unblock":
                assert after.queued[id].blocked, f"what is blocked goes on by itself: {id}"

    # ── fewer runs ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _fewer_runs(self, message: Message, before: ShardState, after: ShardState) -> None:
        early = {id for id in after.claimed.keys() - before.claimed.keys() if before.spaced.get(id, 0) > self.now}
        assert not early, f"throttle: {early} start before their time"
        assert not (after.open and after.spaced), f"throttle: {message} left an open claim"
        assert after.rules.keys() <= after.queued.keys() | after.claimed.keys(), "a rule of nothing"
        assert after.debounced.keys() <= after.queued.keys(), "debounced and not queued"
        if message.script != "push":
            return
        for id in before.queued.keys() & after.queued.keys():
            entry, moved = before.queued[id], after.queued[id].due
            at, latest = before.debounced.get(id, (None, 0))
            may_move = entry.due == at and entry.retry_count < 0 and not entry.waits
            assert moved == entry.due or may_move, f"debounce: {message} moved {id}, which waits for something else"
            assert moved in {entry.due, *after.spaced.values()} or moved <= latest, f"debounce: {id} later than at most"

    @staticmethod
    def _superseded(message: Message, before: ShardState, after: ShardState, most: Counter[Token]) -> Counter[Token]:
        """What `keep` has dropped: it is counted, and no higher one of its id, or lower one, is kept in its place."""
        lost = most.keys() - _places(after).keys()
        told = after.counters["superseded"] - before.counters["superseded"]
        dropped: Counter[Token] = Counter()
        for id, payload in lost:
            rows = message.details.get("rows", ())
            asked = zip(rows, all_asked(rows, message.details.get("asked", ())), strict=True)
            keeps = {after.rules.get(id, (None, ""))[1], *(fewer.keep for row, fewer in asked if row[0] == id)}
            if not keeps & {"last", "first"} or id not in after.queued:
                continue
            dropped[id, payload] = most[id, payload]
            if len(keeps) > 1:
                continue  # of equal payloads those that are not kept so have the lower score
            keep = "last" if "last" in keeps else "first"
            score = (max if keep == "last" else min)(after.queued[id].payloads.values())
            scores = [
                entries[id].payloads[payload]
                for entries in (before.queued, before.claimed)
                if id in entries and payload in entries[id].payloads
            ] + [row[2] for row in rows if row[:2] == (id, payload) and row[2] is not None]
            best = (max if keep == "last" else min)(scores, default=score)
            assert best <= score if keep == "last" else best >= score, f"keep: {message} kept {score} and not {best}"
        assert len(dropped) <= told, f"keep: {message} has counted {told} superseded ones of {dropped}"
        return dropped

    # ── what is cancelled ───────────────────────────────────────────────────────────────────────────────────────────

    @staticmethod
    def _what_is_cancelled_does_not(before: ShardState, after: ShardState) -> None:
        for number, id in before.cancelled:
            lease = _lease(before, number)
            if id in _by_leases(after).get(lease, {}):
                cancelled = {(_lease(after, name), id) for name, id in after.cancelled}
                assert (lease, id) in cancelled, f"a cancelled run was forgotten: {id}"
                continue
            assert id not in after.cancels, f"a cancelled run is over, and its mark is not: {id}"
            run = before.claims[number][id].payloads.keys()
            for where, were, are in (
                ("queue", before.queued, after.queued), ("morgue", before.morgue, after.morgue),
            ):  # fmt: skip
                known = were[id].payloads.keys() if id in were else set[bytes]()
                found = are[id].payloads.keys() if id in are else set[bytes]()
                assert not run & (found - known), f"a cancelled run came back to the {where}: {id}"


def _name(message: Message, before: ShardState) -> Any:
    """The claim that it speaks of."""
    number = message.details.get("number")
    return (message.epoch, number) if _is_of_away(message, before) else number


def _is_of_away(message: Message, before: ShardState) -> bool:
    """It comes from who has a claim that is away, and speaks of that."""
    if message.script not in OF_CLAIMS or (message.node, message.epoch) == (before.node, before.epoch):
        return False
    name: Any = (message.epoch, message.details.get("number"))
    away = before.away.get(name)
    return away is not None and away.node == message.node


def _by_leases(state: ShardState) -> dict[tuple[int, int], dict[str, Entry]]:
    """Claims by epoch and number: as one goes away it is not another one."""
    return {_lease(state, name): claim for name, claim in state.claims.items()}


def _lease(state: ShardState, name: ClaimName) -> tuple[int, int]:
    return name if isinstance(name, tuple) else (state.epoch, name)


def _is_more(entries: dict[str, Entry], before: dict[str, Entry]) -> bool:
    return bool(_tokens(entries) - _tokens(before))


def _may_act(message: Message, before: ShardState) -> bool:
    """A layout is also written by who knows the next one."""
    known, theirs = (str(text).split(":") for text in (before.layout, message.layout))
    return known[0] <= theirs[0] and known[1] == theirs[1]


def _pushed(message: Message, reply: Any) -> Counter[Token]:
    """What this message says that it has put into the queue."""
    rows = message.rows if message.script == "push" and isinstance(reply, tuple) else []
    if message.script == "push_apart":
        rows = itertools.compress(message.rows, reply)
    return Counter((row[0], row[1]) for row in rows)


def _tokens(entries: dict[str, Entry]) -> set[Token]:
    return {(id, payload) for id, entry in entries.items() for payload in entry.payloads}


def _places(state: ShardState) -> Counter[Token]:
    places: Counter[Token] = Counter()
    for held in (state.queued, state.claimed, state.morgue):
        places.update(_tokens(held))  # type: ignore[arg-type]
    return places + _kept(state)


def _kept(state: ShardState) -> Counter[Token]:
    return Counter((id, payload) for (_, id), kept in state.kept.items() for payload, _ in kept.payloads)


def _outcome(message: Message) -> Any:
    """What a finish says is what a settle says of which every job is done."""
    return Outcome(rest="ack") if message.script == "finish" else message.outcome


def _given_back(message: Message, before: ShardState) -> set[str]:
    """The ids that a settle returns to the queue as they were."""
    outcome, claim = _outcome(message), before.claims.get(_name(message, before), {})
    back = set(outcome.released)
    if outcome.rest == "release":
        rows = (*outcome.failed, *outcome.exhausted, *outcome.snoozed, *outcome.limited, *outcome.crashed)
        back |= claim.keys() - {*outcome.acked, *(row.id for row in rows)}
    spoiled = {(row.id, row.payload) for row in outcome.spoiled}
    return {id for id in back & claim.keys() if _tokens({id: claim[id]}) - spoiled}


def _ended(message: Message, reply: Any, before: ShardState) -> Counter[Token]:
    """What this message may take out of the shard for good."""
    if message.script == "drop":
        return _dropped(message, before)
    if message.script == "unblock":
        return _skipped(message, before)
    ended: Counter[Token] = Counter()
    is_owner = message.script in {"settle", "finish"} and (message.node, message.epoch) == (before.node, before.epoch)
    is_owner = is_owner or (message.script == "settle" and _is_of_away(message, before))
    name = _name(message, before)
    if not is_owner or (message.script == "finish" and reply is None):
        return ended
    outcome = _outcome(message)
    spoiled = {(row.id, row.payload) for row in outcome.spoiled}
    going_back = (*outcome.failed, *outcome.exhausted, *outcome.snoozed, *outcome.limited, *outcome.crashed)
    others = {*outcome.released, *(row.id for row in going_back)}
    for id, entry in before.claims.get(name, {}).items():
        if id in outcome.acked or (outcome.rest == "ack" and id not in others):
            ended.update({(id, payload) for payload in entry.payloads} - spoiled)
    for row in outcome.exhausted:
        claimed = before.claims.get(name, {}).get(row.id)
        if row.fate == "discard" and claimed and (name, row.id) not in before.cancelled:
            left = [(payload, score) for payload, score in claimed.payloads.items() if (row.id, payload) not in spoiled]
            ended.update((row.id, payload) for payload, _ in lowest_first(dict(left))[:1])
    return ended


def _skipped(message: Message, before: ShardState) -> Counter[Token]:
    entry = before.queued.get(message.id)
    if message.how != "skip" or entry is None or not entry.blocked or not _may_act(message, before):
        return Counter()
    return Counter([(message.id, lowest_first(entry.payloads)[0][0])])


def _cancelled(message: Message, reply: Any, before: ShardState, after: ShardState) -> Counter[Token]:
    """What has been dropped because somebody has cancelled it, now or before."""
    tokens = {
        (id, payload)
        for number, id in before.cancelled
        if id not in _by_leases(after).get(_lease(before, number), {})
        for payload in before.claims[number][id].payloads
    }
    if message.script == "cancel" and reply == 1 and message.id in before.queued:
        tokens |= _tokens({message.id: before.queued[message.id]})
    return Counter(tokens)


def _dropped(message: Message, before: ShardState) -> Counter[Token]:
    entries: dict[str, Any] = before.morgue if message.which == "morgue" else before.queued
    entry = entries.get(message.id)
    if entry is None or not _may_act(message, before) or (message.which == "failed" and entry.retry_count < 0):
        return Counter()
    return Counter((message.id, payload) for payload in entry.payloads)
