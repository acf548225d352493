"""ShardModel: how each script changes a shard, in plain Python. Times and scores are microseconds."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from lowkiq.errors import Fenced, Late, Paused, StaleClaim, Unsettled
from lowkiq.queue.shard import Held, Outcome, Owned, Released, Restored, Settled
from lowkiq.testing.model.shard_rules import Claimed, Ran, ShardRules
from lowkiq.testing.model.shard_state import (
    NEVER,
    ONE,
    SECOND,
    Asked,
    Away,
    ClaimName,
    Delay,
    Entry,
    Grave,
    Tags,
    TakenJob,
    all_asked,
    joined,
    lowest_first,
    merge,
)

#: Ids that a claim looks at together where some may not start, and that it looks at in all.
WIDE, MOST_LOOKED_AT = 250, 500
#: Microseconds of the clock for each of which epochs differ once that was set back.
EPOCH_STEPS = 10_000
#: In place of the error of a job that was buried by hand.
BY_HAND = "moved to the morgue by hand"


class ShardModel(ShardRules):
    """Each method is a script: it returns what the script's call means, or raises its refusal."""

    # ── producers ───────────────────────────────────────────────────────────────────────────────────────────────────

    def push(
        self,
        layout: str,
        rows: Sequence[tuple[str, bytes, int | None, int | None, Tags, str]],
        stamp: tuple[str, int],
        asked: Sequence[Asked] = (),
    ) -> tuple[int, int]:
        state, sender = self.state, stamp[0]
        if (said := self._heard(stamp, len(rows))) is not None:
            return said, len(rows) - said
        if self._is_late(stamp):
            raise Late(f"{self.now}")
        self._check_layout(layout)
        new = self._push(layout, rows, asked, is_known=sender in state.senders)
        state.senders[sender] = stamp[1], None if new == len(rows) else new
        return new, len(rows) - new

    def _push(
        self,
        layout: str,
        rows: Sequence[tuple[str, bytes, int | None, int | None, Tags, str]],
        asked: Sequence[Asked],
        *,
        is_known: bool,
    ) -> int:
        """Returns how many are new."""
        state = self.state
        state.layout = state.layout or layout
        now, last_before, new, earliest = self._shard_now(), state.last_score, 0, None
        jobs = zip(rows, all_asked(rows, asked), strict=True)
        for number, ((id, payload, given_score, perform_in, tags, tenant), fewer) in enumerate(jobs):
            state.last_score = max(state.last_score + 1, now)
            score = state.last_score if given_score is None else given_score
            # Its place in time is that of its default score, unless that lies ahead of a clock that was set back.
            place = now + number if last_before > now else state.last_score
            moves_to = None
            if fewer != Asked():
                self._set_rule(id, fewer)
                moves_to = self._fewer_due(id, fewer, place) if perform_in is None else None
            if id in state.queued and moves_to is not None:
                state.queued[id].due = moves_to
                earliest = moves_to if earliest is None else min(earliest, moves_to)
            is_queued = id in state.queued
            if not is_queued:
                new += 1
                is_fresh = given_score is None and last_before <= now
                due = place if perform_in is None else perform_in
                due += place if isinstance(perform_in, Delay) else 0
                due = due if moves_to is None else moves_to
                runs_on = last_before < self.now and state.seen is None  # Redis's clock, as far as pushes know
                is_same = layout == state.layout  # a push of a newer layout than the shard's leaves it to the owner
                is_short = not (tags or tenant) and fewer == Asked()
                may_go = len(rows) == 1 and is_fresh and perform_in is None and runs_on and is_same and is_short
                may_go = may_go and is_known
                if may_go and self._hand_over(id, payload, score):
                    continue
                earliest = due if earliest is None else min(earliest, due)
                state.queued[id] = Entry({}, due)
            if is_queued and fewer.keeps_one:
                self._keep_one(state.queued[id].payloads, fewer.keep, (payload, score))
            else:
                merge(state.queued[id].payloads, {payload: score}, self._keep_of(id))
            state.queued[id].tags = joined(state.queued[id].tags, tags)
            if tenant:
                state.tenants[id] = tenant
        state.last_score = max(state.last_score, now)
        self._see(now, last_before)
        state.counters["pushed"] += len(rows)
        state.counters["merged"] += len(rows) - new
        if earliest is not None:
            self._ring(earliest, now if last_before > now else state.last_score)
        return new

    def push_apart(
        self,
        layout: str,
        rows: Sequence[tuple[str, bytes, int | None, int | None, Tags, str]],
        stamp: tuple[str, int],
    ) -> list[int]:
        """Takes what is as plain as most: up to the first of a queued id, and nothing where anybody has to be told."""
        state = self.state
        if (said := self._heard(stamp, len(rows))) is not None or self._is_late(stamp):
            return [int(number < (said or 0)) for number in range(len(rows))]
        runs_on = state.seen is None and state.last_score - self.now < SECOND
        is_plain = runs_on and state.layout == layout and state.waiting is None
        taken = []
        for id, payload, *_ in rows:
            is_plain = is_plain and id not in state.queued
            if is_plain:
                score = state.last_score = max(state.last_score + 1, self.now)
                state.queued[id] = Entry({payload: score}, score)
                state.counters["pushed"] += 1
            taken.append(int(is_plain))
        state.senders[stamp[0]] = stamp[1], None if all(taken) else sum(taken)
        return taken

    def _heard(self, stamp: tuple[str, int], count: int) -> int | None:
        """What was said of a call that was applied."""
        number, new = self.state.senders.get(stamp[0], (None, None))
        return (count if new is None else new) if number == stamp[1] else None

    def _is_late(self, stamp: tuple[str, int]) -> bool:
        """Its sender has sent another one since, or waits for it no more."""
        sender, number = stamp
        return self.now > number or self.state.senders.get(sender, (0, None))[0] > number

    # ── nodes: the lease ────────────────────────────────────────────────────────────────────────────────────────────

    def acquire(
        self, node: str, layout: str, ttl: int, max_crashes: int, dead: Mapping[str, Ran], is_foster: bool, bell: str
    ) -> Owned | Held:
        state = self.state
        self._check_layout(layout)
        is_foreign = state.node is not None and state.node != node
        rest = state.until - self.now
        if is_foreign and rest > 0 and state.node not in dead:
            if rest > state.ttl:  # of a clock that was set back since
                state.until, rest = self.now + state.ttl, state.ttl
            if not is_foster:
                state.wanted = node
            return Held(str(state.node), rest / SECOND)
        has_died = is_foreign and not state.is_abandoned
        restored = buried = 0
        for number in state.own:
            doomed = self._count_death(number, dead.get(str(state.node)), max_crashes) if has_died else ()
            returned, died = self._restore(number, doomed, has_run=True)
            restored, buried = restored + returned, buried + died
        returned, died = self._restore_away(dead, max_crashes)
        restored, buried = restored + returned, buried + died
        if not state.away:
            state.cancels.clear()
        if not state.queued and not state.away:
            state.rules.clear()
            state.debounced.clear()
        state.epoch = self._next_epoch()
        state.layout = layout
        state.node, state.until, state.ttl = node, self.now + ttl, ttl
        state.claim_number, state.alone, state.is_abandoned, state.wanted = 0, None, False, None
        state.bell, state.waiting, state.open = bell, None, None
        state.rests = None if state.paused is None else state.epoch
        has_parked = any(entry.waits for entry in state.queued.values())
        rare = {"has_letters": bool(state.untold), "has_parked": has_parked, "has_away": bool(state.away)}
        return Owned(str(state.epoch), self._arm(), restored, buried, **rare)

    def _next_epoch(self) -> int:
        """It rises with the clock; after that was set back from where epochs are, and soon by the clock again."""
        state, (noted, since) = self.state, self.state.lead
        lead = max(0, noted - max(0, (self.now - since) // 2))
        if state.epoch - self.now - lead >= SECOND:
            lead = state.epoch + 1 + self.now // EPOCH_STEPS - self.now
            state.lead = (lead, self.now)
        return max(state.epoch + 1, self.now + lead)

    def renew(self, node: str, epoch: int, ttl: int) -> list[int]:
        state = self.state
        if (state.node, state.epoch) != (node, epoch):
            return [0]
        state.until = self.now + ttl
        is_restless = state.paused is not None and state.rests != epoch
        wanted = 2 if state.wanted not in {None, node} else 1
        return [
            wanted
            + (4 if state.cancels else 0)
            + 8 * is_restless
            + 16 * bool(state.untold)
            + (128 if state.away else 0)
        ]

    def renew_away(self, node: str, epoch: int, number: int, ttl: int) -> list[int]:
        try:
            name = self._held(node, epoch, number)
        except Fenced:
            return [0]
        if not self._is_there(name):
            return [0]
        if isinstance(name, tuple):
            self.state.away[name].until, self.state.away[name].ttl = self.now + ttl, ttl
        return [1 + (4 if self.state.cancels else 0)]

    def restore_away(self, node: str, epoch: int, max_crashes: int, dead: Mapping[str, Ran]) -> Restored:
        self._fence(node, epoch)
        restored, buried = self._restore_away(dead, max_crashes)
        return Restored(restored, buried, len(self.state.away), self._arm())

    def release(
        self, node: str, epoch: int, number: int, what: str, ttl: int = 0, away: Collection[int] = ()
    ) -> Released:
        state = self.state
        self._fence(node, epoch)
        restored = 0
        if what == "lease" and state.claim_number <= number:
            restored = sum(self._restore(other)[0] for other in state.own if other not in away)
            for other in state.own:
                alone = state.alone[1] if state.alone and state.alone[0] == other else ""
                state.claims[epoch, other] = state.claims.pop(other)
                state.away[epoch, other] = Away(node, self.now + ttl, ttl, alone=alone)
            told = state.wanted or ""
            state.node, state.until, state.ttl, state.claim_number = None, 0, 0, 0
            state.is_abandoned, state.wanted, state.bell, state.waiting = False, None, None, None
            state.open = state.alone = state.rests = None
            return Released(restored, None, told)
        if what == "claim" and (number == state.claim_number or number in state.claims):
            restored, _ = self._restore(number)
            state.open = None
            if state.alone and state.alone[0] == number:
                state.alone = None
        elif what == "claim" and number > state.claim_number:
            state.claim_number, state.open = number, None
        return Released(restored, self._arm(), "")

    def abandon(self, node: str, epoch: int, number: int | None = None) -> int:
        if number is None:
            self._fence(node, epoch)
            self.state.is_abandoned = True
        elif isinstance(name := self._held(node, epoch, number), tuple):
            self.state.away[name].is_left = True
        return 1

    # ── nodes: claims ───────────────────────────────────────────────────────────────────────────────────────────────

    def claim(
        self,
        node: str,
        epoch: int,
        number: int,
        layout: str,
        limit: int,
        most_of_a_job: int,
        most_in_all: int,
        known: Collection[int],
        *,
        is_closed: bool = False,
    ) -> list[TakenJob]:
        state = self.state
        self._fence(node, epoch)
        self._check_layout(layout, can_write_older=False)
        if number <= state.claim_number:
            raise StaleClaim
        if state.paused is not None:
            raise Paused
        if unknown := set(state.own) - set(known):
            raise Unsettled(str(min(unknown)))
        state.claim_number, state.open = number, None
        self._follow_clock_back()
        now = self._shard_now()
        running = state.claimed
        state.spaced = {id: until for id, until in state.spaced.items() if until > self.now}
        is_any_spaced = bool(state.spaced)
        claim, taken = dict[str, Entry](), 0
        for id in self._parted(self._found(now, limit)):
            if taken >= most_in_all:
                break
            entry = state.queued.pop(id)
            order = lowest_first(entry.payloads)
            claim[id] = Entry(dict(order[:most_of_a_job]), entry.due, entry.retry_count, tags=entry.tags)
            if order[most_of_a_job:]:
                state.queued[id] = Entry(dict(order[most_of_a_job:]), entry.due, tags=entry.tags)
            taken += min(len(order), most_of_a_job)
            self._start(id)
        if claim:
            state.claims[number] = claim
        else:
            state.open = None if running or state.held or is_any_spaced or is_closed else (epoch, number)
            self._arm()
        return [
            (
                id, lowest_first(entry.payloads), entry.due, entry.retry_count,
                state.crowds.get(id, 0), self._kept(id, entry), entry.tags,
            )
            for id, entry in claim.items()
        ]  # fmt: skip

    def _found(self, now: int, limit: int) -> list[str]:
        """Due ids that may start. What may not is parked, or put off, and it looks on."""
        state, looked, most = self.state, 0, limit
        stopped = state.claimed.keys() | state.held.keys()
        while True:
            ids = self._chosen(now, most)
            for id in stopped & set(ids):
                self._park(id)
            self._put_off([id for id in ids if id not in stopped])
            free = [id for id in ids if id not in stopped and state.queued[id].due <= now]
            looked += len(ids)
            if self.met is not None or len(free) == len(ids) or len(free) >= limit or looked >= MOST_LOOKED_AT:
                return free[:limit]
            most = max(limit, WIDE)

    def _chosen(self, now: int, limit: int) -> list[str]:
        """The due ids that a claim meets. Of lanes, whose turns the model does not count, it does what Redis did."""
        due = self.state.due_by(now)
        if not self.state.tenants or self.met is None:
            return due[:limit]
        taken, after = self.met
        assert set(taken) <= set(due), f"not due: {set(taken) - set(due)}"
        # Others that it has met it has parked, or put off as they are throttled.
        left = [id for id in due if id in after and (after[id].waits or after[id].due > now)]
        met = [*(id for id in left if id not in taken), *taken]
        are_suspects = any(id in self.state.crowds for id in due)
        assert are_suspects or self.met_enough or len(met) >= min(limit, len(due)), f"{met} of {due} alone"
        return met

    def _kept(self, id: str, entry: Entry) -> bytes | None:
        """What a run of one of these payloads has kept."""
        payload, value = self.state.checkpoints.get(id, (None, b""))
        return value if payload in entry.payloads else None

    def checkpoint(self, node: str, epoch: int, number: int, id: str, value: bytes) -> bool:
        entry = self.state.claims.get(self._held(node, epoch, number), {}).get(id)
        if entry is None:
            return False
        self.state.checkpoints[id] = (lowest_first(entry.payloads)[0][0], value)
        return True

    def isolate(self, node: str, epoch: int, number: int, id: str, *, is_alone: bool) -> bool:
        state, name = self.state, self._held(node, epoch, number)
        if not self._is_there(name):
            return False
        if isinstance(name, tuple):
            away = state.away[name]
            away.alone = id if is_alone else "" if away.alone == id else away.alone
        elif is_alone:
            state.alone = (number, id)
        elif state.alone == (number, id):
            state.alone = None
        return True

    def settle(self, node: str, epoch: int, number: int, outcome: Outcome) -> Settled:
        state, name = self.state, self._held(node, epoch, number)
        before = dict(state.counters)
        buried = self.places = 0
        if claim := state.claims.get(name):
            buried = self._settle(name, claim, outcome)
            if not claim:
                self._restore(name)
        acked, failed = (state.counters[one] - before[one] for one in ("processed", "failed"))
        if isinstance(name, int):
            return Settled(acked, failed, buried, self._arm())
        # The owner, who does not look, learns of what comes back.
        due = min((entry.due for entry in state.queued.values() if not entry.waits), default=NEVER)
        if due < NEVER:
            self._ring(due, self._shard_now())
        return Settled(acked, failed, buried, None)

    def _settle(self, number: ClaimName, claim: Claimed, outcome: Outcome) -> int:
        """Ends jobs of a claim. Returns how many were buried."""
        self._drop_cancelled(number, (row.id for row in outcome.spoiled))
        buried = sum(self._spoil(claim, row.id, row.payload, row.error) for row in outcome.spoiled)
        for id in outcome.acked:
            self._ack(claim, id)
        self._drop_cancelled(number, outcome.released)
        napping = (*outcome.snoozed, *outcome.limited)
        for rows in (outcome.failed, napping, outcome.exhausted, outcome.crashed):
            self._drop_cancelled(number, (row.id for row in rows))
        for id in claim.keys() & set(outcome.released):
            self._requeue(id, claim.pop(id))
            if id not in outcome.stopped:
                self.state.spaced.pop(id, None)
        for row in outcome.failed:
            self._fail(claim, row.id, row.retry_count, round(row.delay * SECOND), row.error)
        for nap in napping:
            self._snooze(claim, nap.id, round(nap.delay * SECOND), has_run=nap.kind == "snoozed")
        buried += sum(self._end(claim, row.id, row.error, row.fate) for row in outcome.exhausted)
        buried += sum(self._crash(claim, row.id, row.max_crashes, row.fate) for row in outcome.crashed)
        if outcome.rest == "ack":
            for id in list(claim):
                self._ack(claim, id)
        elif outcome.rest == "release":
            self._restore(number)
        return buried

    def finish(self, node: str, epoch: int, number: int, following: int) -> Settled | None:
        state = self.state
        is_last = (state.node, state.epoch, state.claim_number) == (node, epoch, number)
        is_tagged = any(entry.tags for entry in state.claimed.values())
        rare = state.crashes or state.errors or state.cancels or state.checkpoints or is_tagged or state.tenants
        is_stopped = state.paused or state.held or state.rules or state.spaced
        if not is_last or state.queued or state.claims.keys() - {number} or rare or is_stopped:
            return None
        acked = len(state.claims.pop(number, {}))
        state.counters["processed"] += acked
        state.claim_number, state.open = following, (epoch, following)
        return Settled(acked, 0, 0, self._arm())

    def rest(self, node: str, epoch: int, number: int, in_hand: Collection[int]) -> bool:
        state = self.state
        self._fence(node, epoch)
        if state.paused is None or max(state.own, default=0) > number:
            return False
        for other in set(state.own) - set(in_hand):
            self._restore(other)
        state.rests = epoch
        return True

    # ── operators ───────────────────────────────────────────────────────────────────────────────────────────────────

    def revive(self, layout: str, most: int, id: str) -> list[int | bytes]:
        """How many were moved, and the ids of which only a part was."""
        state = self.state
        self._check_layout(layout)
        if id not in state.morgue:
            return [0]
        dead, queued = state.morgue[id], state.queued.setdefault(id, Entry({}, 0))
        if self._keep_of(id) in ONE:
            self._come_back(id, dead.payloads)
            dead.payloads.clear()
        else:
            state.debounced.pop(id, None)
            self._move(dead.payloads, queued.payloads, most, self._keep_of(id))
        queued.tags = joined(queued.tags, dead.tags)
        now, place = self._shard_now(), self._note_time()
        queued.due, queued.retry_count = queued.due if queued.waits or queued.blocked else place, -1
        self._ring(now, now)
        if dead.error != BY_HAND:
            state.errors.setdefault(id, dead.error)
        if dead.payloads:
            return [0, id.encode()]
        del state.morgue[id]
        return [1]

    def behind_newer(self, id: str) -> bool:
        """True for a dead job that would run behind newer payloads of its id."""
        dead, running = self.state.morgue[id], self.state.claimed.get(id)
        oldest, left = min(dead.payloads.values()), self._left(id)
        if running and max(running.payloads.values()) > oldest:
            return True
        return dead.newer is not None and dead.newer > oldest and (left is None or left > dead.newer)

    def bury(self, layout: str, most: int, which: str, id: str) -> list[int | bytes]:
        state = self.state
        self._check_layout(layout)
        if not self._is_wanted(id, which):
            return [0]
        grave = state.morgue.setdefault(id, Grave({}, ""))
        grave.error, grave.at = state.errors.get(id, grave.error or BY_HAND), self.now
        self._move(state.queued[id].payloads, grave.payloads, most)
        grave.tags = joined(grave.tags, state.queued[id].tags)
        if state.queued[id].payloads:
            return [0, id.encode()]
        self._leave_queue(id)
        return [1]

    def drop(self, layout: str, which: str, id: str) -> int:
        self._check_layout(layout)
        if which == "morgue":
            return int(self.state.morgue.pop(id, None) is not None)
        if not self._is_wanted(id, which):
            return 0
        self._leave_queue(id)
        return 1

    def put_away(self, layout: str, which: str, name: str, seconds: int, id: str) -> list[int]:
        """Deletes a job, and keeps it, unless that deletion has one of its id already."""
        state = self.state
        self._check_layout(layout)
        is_there = id in state.morgue if which == "morgue" else self._is_wanted(id, which)
        if is_there and (name, id) not in state.kept:
            state.kept[name, id] = self._dead(id) if which == "morgue" else self._as_queued(id)
            self.drop(layout, which, id)
            return [1, sum(known == name for known, _ in state.kept)]
        return [0, sum(known == name for known, _ in state.kept)]

    def put_back(self, layout: str, name: str, *ids: str) -> int:
        self._check_layout(layout)
        state, returned, earliest = self.state, 0, math.inf
        for id in ids:
            kept = state.kept.pop((name, id), None)
            if kept is None:
                continue
            returned += 1
            if kept.tenant is not None:
                state.tenants.setdefault(id, kept.tenant)
            if kept.where == "morgue":
                grave = state.morgue.setdefault(id, Grave({}, kept.error or ""))
                merge(grave.payloads, dict(kept.payloads))
                grave.tags = joined(grave.tags, kept.tags)
                continue
            was_blocked = id in state.queued and state.queued[id].blocked
            if kept.rule:
                state.rules.setdefault(id, kept.rule)
            back = Entry(dict(kept.payloads), kept.due, kept.retry_count, tags=kept.tags)
            self._requeue(id, replace(back, due=NEVER, retry_count=-1) if was_blocked else back)
            if kept.due == NEVER and not was_blocked:
                state.queued[id].blocked = self._shard_now()
            earliest = min(earliest, kept.due)
            if id not in state.claimed:
                self._remember(id, kept)
        if earliest < math.inf:
            self._ring(int(earliest), self._shard_now())
        return returned

    def cancel(self, layout: str, id: str) -> int:
        self._check_layout(layout)
        state = self.state
        name = next((name for name, claim in state.claims.items() if id in claim), None)
        if name is not None:
            state.cancels[id] = name if isinstance(name, tuple) else (state.epoch, name)
        elif id not in state.queued:
            return 0
        if id in state.queued:
            self._leave_queue(id)
        return 1

    def pause(self, layout: str, told: bytes) -> list[bytes]:
        """Since when, and who may still start what it has claimed. Without anything told it only looks."""
        state = self.state
        self._check_layout(layout)
        if told:
            state.paused = (self.now if state.paused is None else state.paused[0], told)
            state.open = None
            state.layout = state.layout or layout
        if state.paused is None:
            return [b"", b""]
        is_at_rest = state.node is None or state.until <= self.now or state.rests == state.epoch
        return [f"{state.paused[0] / SECOND:.6f}".encode(), b"" if is_at_rest else str(state.node).encode()]

    def hold(self, layout: str, told: bytes, *ids: str) -> int:
        state = self.state
        self._check_layout(layout)
        state.open, state.layout = None, state.layout or layout
        new = set(ids) - state.held.keys()
        for id in ids:
            state.held[id] = (state.held[id][0] if id in state.held else self.now, told)
        return len(new)

    def let_go(self, layout: str, *ids: str) -> int:
        state = self.state
        self._check_layout(layout)
        gone = [id for id in ids if state.held.pop(id, None)]
        for id in gone:
            self._unpark(id)
        times = [state.queued[id].due for id in gone if id in state.queued and not state.queued[id].waits]
        if times:
            self._ring(min(times), self._shard_now())
        return len(gone)

    def resume(self, layout: str) -> int:
        state = self.state
        self._check_layout(layout)
        if state.paused is None:
            return 0
        state.paused = state.rests = None
        if state.node is not None:
            state.waiting = math.inf
            times = [entry.due for entry in state.queued.values() if not entry.waits]
            if times:
                self._ring(min(times), self._shard_now())
        return 1

    def unblock(self, layout: str, how: str, id: str) -> int:
        self._check_layout(layout)
        state, entry = self.state, self.state.queued.get(id)
        if entry is None or not entry.blocked:
            return 0
        if how == "skip":
            del entry.payloads[lowest_first(entry.payloads)[0][0]]
            if not entry.payloads:
                self._leave_queue(id)
                return 1
            state.errors.pop(id, None)
            state.checkpoints.pop(id, None)
        now, entry.due, entry.blocked = self._shard_now(), self._note_time(), None
        self._ring(now, now)
        return 1

    def perform_now(self, layout: str, id: str) -> int:
        self._check_layout(layout)
        entry = self.state.queued.get(id)
        if entry and not entry.waits and not entry.blocked:
            self.state.spaced.pop(id, None)
        if entry is None or entry.waits or entry.blocked or entry.due <= self._shard_now():
            return 0
        now, entry.due = self._shard_now(), self._note_time()
        self._ring(now, now)
        return 1
