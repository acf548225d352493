"""ShardRules: what several scripts have in common, in plain Python."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from lowkiq.errors import Fenced, NewerLayout, ShardsCountMismatch
from lowkiq.queue.shard import Fate
from lowkiq.testing.model.shard_state import (
    NEVER,
    ONE,
    SECOND,
    Asked,
    ClaimName,
    Entry,
    Grave,
    Kept,
    Payloads,
    ShardState,
    Tags,
    joined,
    lowest_first,
    merge,
)

#: The jobs of one claim.
Claimed = dict[str, Entry]
#: Deaths beside others at which an id is buried, and from which on it pauses before it runs again; the longest pause.
MOST_CROWDS, TRIED, LONGEST_PAUSE = 24, 2, 600 * SECOND


#: What ran of a shard: of each claim its number, jobs, jobs after them, and whether in a process of their own; None if
#: nobody knows.
Ran = tuple[tuple[int, int, int, bool], ...] | None


def text_of_deaths(died: int) -> str:
    return f"the node that ran this job died {died} times (max_crashes)"


def suspected(state: ShardState, name: ClaimName, ran: Ran) -> list[str]:
    """Which ids of that claim may have killed their node."""
    ids = list(state.claims[name])
    if ran is None:
        return ids
    run = _run_of(name, ran)
    if run is None:
        return []
    _, jobs, after, _ = run
    end = len(ids) - after
    return ids[end - jobs : end] if end >= jobs else ids


def ran_apart(name: ClaimName, ran: Ran) -> bool:
    """Whether what ran of that claim is known to have had a process of its own."""
    run = _run_of(name, ran or ())
    return run is not None and run[3]


def _run_of(name: ClaimName, ran: tuple[tuple[int, int, int, bool], ...]) -> tuple[int, int, int, bool] | None:
    return {run[0]: run for run in ran}.get(name if isinstance(name, int) else name[1])


class ShardRules:
    """A shard, and what can become of its jobs. `now` is Redis's clock."""

    def __init__(self) -> None:
        self.state = ShardState()
        self.now = 0
        #: Given by a settle so far.
        self.places = 0
        #: Ids that a claim of lanes has taken, in its order, and what is queued after it, by what Redis says;
        #: and whether it was full before its limit.
        self.met: tuple[list[str], Mapping[str, Entry]] | None = None
        self.met_enough = False

    def forget_tenants(self) -> None:
        """An id that is in no place any more has no tenant."""
        state = self.state
        known = state.queued.keys() | state.claimed.keys() | state.morgue.keys()
        state.tenants = {id: tenant for id, tenant in state.tenants.items() if id in known}

    def _check_layout(self, layout: str, *, can_write_older: bool = True) -> None:
        if self.state.layout is None:
            return
        known, ours = (tuple(map(int, text.split(":"))) for text in (self.state.layout, layout))
        if known[0] > ours[0]:
            raise NewerLayout
        if known[1] != ours[1] or (known != ours and not can_write_older):
            raise ShardsCountMismatch

    def _fence(self, node: str, epoch: int) -> None:
        if (self.state.node, self.state.epoch) != (node, epoch):
            raise Fenced

    def _held(self, node: str, epoch: int, number: int) -> ClaimName:
        """The name of a node's claim, be it over. Raises Fenced: it has none such."""
        if (self.state.node, self.state.epoch) == (node, epoch):
            return number
        away = self.state.away.get((epoch, number))
        if away is None or away.node != node:
            raise Fenced
        return epoch, number

    def _is_there(self, name: ClaimName) -> bool:
        return name in self.state.claims or name == self.state.claim_number

    def _shard_now(self) -> int:
        """Not behind the last score, unless that is so far ahead that the clock must have been set back."""
        ahead = self.state.last_score - self.now
        return self.state.last_score if 0 < ahead < SECOND else self.now

    def _follow_clock_back(self) -> None:
        """What was due before the clock was set back stays due: it is moved back by as much."""
        state, now = self.state, self._shard_now()
        latest = state.last_score if state.seen is None else state.seen
        if state.last_score <= now or latest <= now:
            return
        for entry in state.queued.values():
            if now < entry.due <= latest and not entry.waits:
                entry.due -= latest - now
        state.seen = now

    def _note_time(self) -> int:
        """A job is queued for now by somebody else than a push: behind all that has a place already."""
        last_before = self.state.last_score
        now = self._shard_now()
        now += last_before == now
        self.state.last_score = max(last_before, now)
        self._see(now, last_before)
        return now

    def _see(self, now: int, last_before: int) -> None:
        state = self.state
        if state.seen is not None:
            state.seen = None if last_before <= now else max(state.seen, now)

    def _arm(self) -> float | None:
        """The owner looks, and is told when the oldest job is due."""
        times = (entry.due for entry in self.state.queued.values() if not entry.waits)
        due, now = min(times, default=math.inf), self._shard_now()
        if due > now:
            self.state.waiting = due
        return None if due == math.inf else (due - now) / SECOND

    def _knows_of_later(self, due: int) -> bool:
        waiting = self.state.waiting
        return self.state.node is not None and waiting is not None and due < waiting

    def _ring(self, due: int, now: int) -> None:
        state = self.state
        if self._knows_of_later(due):
            state.waiting = None if due <= now else due
            state.idle.discard(str(state.bell))

    def _hand_over(self, id: str, payload: bytes, score: int) -> bool:
        """A job goes right into the open claim of a thread that listens."""
        state = self.state
        if not (state.open and self._knows_of_later(score) and state.until > score and state.bell in state.idle):
            return False
        state.claims[state.claim_number] = {id: Entry({payload: score}, score)}
        state.idle.remove(str(state.bell))
        state.waiting = state.open = None
        return True

    def _parted(self, ids: list[str]) -> list[str]:
        """A suspect is claimed alone."""
        suspects = [at for at, id in enumerate(ids) if id in self.state.crowds]
        return ids[: max(suspects[0], 1)] if suspects else ids

    def _requeue(self, id: str, back: Entry) -> None:
        """What comes back brings its due time and retry_count along."""
        entry = self.state.queued.setdefault(id, Entry({}, 0))
        self._come_back(id, back.payloads)
        entry.tags = joined(entry.tags, back.tags)
        entry.due, entry.retry_count, entry.waits = back.due, back.retry_count, False

    # ── fewer runs ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _set_rule(self, id: str, asked: Asked) -> None:
        throttle, keep = self.state.rules.pop(id, (None, ""))
        throttle = throttle if asked.throttle is None else asked.throttle or None
        keep = {"": keep, "all": ""}.get(asked.keep, asked.keep)
        if throttle or keep:
            self.state.rules[id] = (throttle, keep)

    def _keep_of(self, id: str) -> str:
        """The rule of an id by which its payloads are kept; "" for the usual one."""
        return self.state.rules.get(id, (None, ""))[1]

    def _debounced_due(self, id: str, asked: Asked, place: int) -> tuple[int, int] | None:
        """When it is due, and the latest time for that; None for an id that waits for something else."""
        assert asked.wait is not None
        latest, entry = place + asked.at_most, self.state.queued.get(id)
        if entry is not None:
            mark = self.state.debounced.get(id)
            if mark is None or entry.waits or entry.due != mark[0]:
                return None
            latest = min(latest, mark[1])
        return min(place + asked.wait, latest), latest

    def _fewer_due(self, id: str, asked: Asked, place: int) -> int | None:
        """When an id is due that is pushed so; None: where it stands, or at once."""
        debounced = None if asked.wait is None else self._debounced_due(id, asked, place)
        due = debounced and debounced[0]
        if due is None and id in self.state.queued:
            return None
        if asked.throttle:
            until = self._spaced_until(id, asked.throttle, place)
            due = until if until > (due or place) else due
        if debounced and due is not None:
            self.state.debounced[id] = (due, debounced[1])
        return due

    def _spaced_until(self, id: str, throttle: int | None, now: int) -> int:
        spaced = self.state.spaced.get(id, 0)
        if throttle and spaced > now + throttle:
            spaced = self.state.spaced[id] = now + throttle
        return spaced

    def _put_off(self, ids: Iterable[str]) -> None:
        """Ids that are due and may not start again yet wait until they may, by the clock."""
        ahead = self._shard_now() - self.now
        for id in ids:
            until = self._spaced_until(id, self.state.rules.get(id, (None, ""))[0], self.now)
            if until > self.now:
                self.state.queued[id].due = until + ahead

    def _start(self, id: str) -> None:
        self.state.debounced.pop(id, None)
        throttle, _ = self.state.rules.get(id, (None, ""))
        if throttle:
            self.state.spaced[id] = self.now + throttle

    def _come_back(self, id: str, payloads: Payloads) -> None:
        """Older payloads than those that are queued of an id come to them: one is kept, if that is the rule."""
        queued, keep = self.state.queued[id].payloads, self._keep_of(id)
        self.state.debounced.pop(id, None)
        if keep not in ONE:
            merge(queued, payloads, keep)
            return
        if len(queued) > 1:
            self._keep_one(queued, keep)
        later, older = dict(queued), dict(payloads)
        queued.clear()
        queued.update(older)
        if len(older) > 1:
            self._keep_one(queued, keep)
        self._keep_one(queued, keep, *later.items())

    def _keep_one(self, payloads: Payloads, keep: str, *later: tuple[bytes, int]) -> None:
        order = lowest_first(payloads)
        kept = order[-1] if keep == "last" else order[0]
        gone = len(payloads) - 1
        for payload, score in later:
            gone += payload not in payloads
            if (score >= kept[1]) if keep == "last" else (score < kept[1]):
                kept = (payload, score)
        payloads.clear()
        payloads.update([kept])
        self.state.counters["superseded"] += gone

    # ────────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _place(self) -> int:
        """Where what goes back in a settle is due, before its delay: one behind the other."""
        self.places += 1
        return self._shard_now() + self.places - 1

    def _park(self, id: str) -> None:
        self.state.queued[id].waits = True

    def _unpark(self, id: str) -> None:
        """It was due when it was parked, and so it is now, whatever has become of the clock."""
        entry = self.state.queued.get(id)
        if entry and entry.waits and id not in self.state.held:
            entry.waits, entry.due = False, min(entry.due, self._shard_now())

    def _is_alone(self, name: ClaimName, id: str) -> bool:
        if isinstance(name, tuple):
            return self.state.away[name].alone == id
        return self.state.alone == (name, id)

    def _count_death(self, name: ClaimName, ran: Ran, max_crashes: int) -> set[str]:
        """Returns who of that claim is to be buried."""
        state, doomed, now = self.state, set(), self._shard_now()
        for id in suspected(state, name, ran):
            was_alone = self._is_alone(name, id) and not ran_apart(name, ran)
            self._add_death(id, was_alone=was_alone)
            crowds = state.crowds.get(id, 0)
            if (was_alone and state.crashes[id] >= max_crashes) or crowds >= MOST_CROWDS:
                doomed.add(id)
            if crowds >= TRIED:
                state.claims[name][id].due = now + min(SECOND * 2 ** (crowds - TRIED), LONGEST_PAUSE)
        return doomed

    def _add_death(self, id: str, *, was_alone: bool) -> None:
        deaths = self.state.crashes if was_alone or id not in self.state.crashes else self.state.crowds
        deaths[id] = deaths.get(id, 0) + 1

    def _restore(self, number: ClaimName, doomed: Collection[str] = (), *, has_run: bool = False) -> tuple[int, int]:
        """What has not run may start again at once."""
        state = self.state
        cancelled = state.cancelled
        claimed = state.claims.pop(number, {})
        if isinstance(number, tuple):
            state.away.pop(number, None)
        restored = buried = 0
        for id, entry in claimed.items():
            if (number, id) in cancelled:
                self._let_go(id)
            elif id in doomed:
                error = text_of_deaths(max(state.crashes[id], state.crowds.get(id, 0)))
                self._let_go(id)
                self._entomb(id, entry.payloads, error, entry.tags, self._left(id))
                state.untold.append(id)
                buried += 1
            else:
                self._requeue(id, entry)
                if not has_run:
                    state.spaced.pop(id, None)
                restored += 1
            state.cancels.pop(id, None)
        return restored, buried

    def _restore_away(self, dead: Mapping[str, Ran], max_crashes: int) -> tuple[int, int]:
        """Claims whose lease has run out, or whose node is known to be dead, go back."""
        restored = buried = 0
        for name, away in list(self.state.away.items()):
            if away.node not in dead:
                away.until = min(away.until, self.now + away.ttl)  # later it lasts by a clock that was set back since
                if away.until > self.now:
                    continue
            doomed = () if away.is_left else self._count_death(name, dead.get(away.node), max_crashes)
            returned, died = self._restore(name, doomed, has_run=True)
            restored, buried = restored + returned, buried + died
        return restored, buried

    def _left(self, id: str) -> int | None:
        """The lowest score of what is queued of an id."""
        return min(self.state.queued[id].payloads.values()) if id in self.state.queued else None

    def _entomb(self, id: str, payloads: Payloads, error: str, tags: Tags, newer: int | None) -> None:
        grave = self.state.morgue.setdefault(id, Grave({}, ""))
        merge(grave.payloads, payloads)
        grave.error, grave.at = error, self._shard_now()
        grave.tags = joined(grave.tags, tags)
        if grave.newer is None or grave.newer == min(payloads.values()):
            grave.newer = newer

    def _let_go(self, id: str) -> None:
        """Its run is over for good."""
        self._forget(id)
        self._unpark(id)
        self.state.cancels.pop(id, None)

    def _drop_cancelled(self, number: ClaimName, ids: Iterable[str]) -> None:
        for _, id in {(number, id) for id in ids} & self.state.cancelled:
            del self.state.claims[number][id]
            self._let_go(id)

    def _forget(self, id: str) -> None:
        self._acquit(id)
        self.state.errors.pop(id, None)
        self.state.checkpoints.pop(id, None)
        if id not in self.state.queued:
            self.state.rules.pop(id, None)

    def _acquit(self, id: str) -> None:
        self.state.crashes.pop(id, None)
        self.state.crowds.pop(id, None)

    def _ack(self, claim: Claimed, id: str) -> None:
        if claim.pop(id, None):
            self._let_go(id)
            self.state.counters["processed"] += 1

    def _fail(self, claim: Claimed, id: str, retry_count: int, delay: int, error: str) -> None:
        if entry := claim.pop(id, None):
            self._requeue(id, Entry(entry.payloads, self._place() + delay, retry_count, tags=entry.tags))
            self._acquit(id)
            self.state.errors[id] = error
            self.state.counters["failed"] += 1

    def _snooze(self, claim: Claimed, id: str, delay: int, *, has_run: bool) -> None:
        """
        Only its due time changes. Of one that has run, no death is held against it any more; one that has not may start
        at once.
        """
        if entry := claim.pop(id, None):
            self._requeue(id, replace(entry, due=self._place() + delay))
            if has_run:
                self._acquit(id)
            else:
                self.state.spaced.pop(id, None)

    def _end(self, claim: Claimed, id: str, error: str, fate: Fate) -> bool:
        """It is not tried again. Returns whether it was buried."""
        entry = claim.pop(id, None)
        if entry is None:
            return False
        self.state.counters["failed"] += 1
        if fate == "block":
            self._block(id, entry, error)
            return False
        if fate == "bury_all":
            self._let_go(id)
            self._entomb(id, entry.payloads, error, entry.tags, self._left(id))
        else:
            gone = self._split_off(id, entry)
            if fate == "bury":
                self._entomb(id, gone, error, entry.tags, self._left(id))
        return fate != "discard"

    def _crash(self, claim: Claimed, id: str, max_crashes: int, fate: str) -> bool:
        """Its own process has died, or what makes such processes. Returns whether it was buried."""
        if id not in claim:
            return False
        if fate == "crowd":
            return self._crash_in_a_crowd(claim, id)
        died = self.state.crashes.get(id, 0) + 1
        if died >= max_crashes:
            return self._bury_for(claim, id, died)
        self.state.crashes[id] = died
        self._requeue(id, claim.pop(id))
        return False

    def _bury_for(self, claim: Claimed, id: str, died: int) -> bool:
        self.state.untold.append(id)
        return self._end(claim, id, text_of_deaths(died), "bury_all")

    def _crash_in_a_crowd(self, claim: Claimed, id: str) -> bool:
        self._add_death(id, was_alone=False)
        crowds = self.state.crowds.get(id, 0)
        if crowds >= MOST_CROWDS:
            return self._bury_for(claim, id, crowds)
        entry = claim.pop(id)
        if crowds >= TRIED:
            entry.due = self._shard_now() + min(SECOND * 2 ** (crowds - TRIED), LONGEST_PAUSE)
        self._requeue(id, entry)
        return False

    def _block(self, id: str, entry: Entry, error: str) -> None:
        """All that there is of it waits for a person."""
        self._requeue(id, replace(entry, due=NEVER, retry_count=-1))
        self.state.queued[id].blocked = self._shard_now()
        self._acquit(id)
        self.state.errors[id] = error

    def _split_off(self, id: str, entry: Entry) -> Payloads:
        """The lowest payload is taken off, the rest start anew."""
        payload, score = lowest_first(entry.payloads)[0]
        del entry.payloads[payload]
        if entry.payloads:
            self._requeue(id, Entry(entry.payloads, self._place(), tags=entry.tags))
        self._let_go(id)
        return {payload: score}

    def _spoil(self, claim: Claimed, id: str, payload: bytes, error: str) -> bool:
        entry = claim.get(id)
        if entry is None or payload not in entry.payloads:
            return False
        score, tags = entry.payloads.pop(payload), entry.tags
        if not entry.payloads:
            del claim[id]
            self._let_go(id)
        later = [left for left in entry.payloads.values() if left >= score]
        self._entomb(id, {payload: score}, error, tags, min(later, default=self._left(id)))
        self.state.counters["failed"] += 1
        return True

    def _is_wanted(self, id: str, which: str) -> bool:
        entry = self.state.queued.get(id)
        return entry is not None and (which != "failed" or entry.retry_count >= 0)

    def _leave_queue(self, id: str) -> None:
        """Failures and deaths of a job in hand stay."""
        del self.state.queued[id]
        self.state.debounced.pop(id, None)
        if id not in self.state.claimed:
            self._forget(id)

    def _as_queued(self, id: str) -> Kept:
        """All that is known of a queued job. While its id runs, failures and deaths are of that run."""
        state, entry = self.state, self.state.queued[id]
        kept = Kept("queue", _sorted(entry.payloads), entry.due, entry.retry_count, tags=entry.tags)
        kept = kept._replace(tenant=state.tenants.get(id), rule=state.rules.get(id))
        if id in state.claimed:
            return kept
        return kept._replace(
            error=state.errors.get(id),
            crashes=state.crashes.get(id),
            crowds=state.crowds.get(id),
            checkpoint=state.checkpoints.get(id),
        )

    def _dead(self, id: str) -> Kept:
        grave = self.state.morgue[id]
        return Kept(
            "morgue", _sorted(grave.payloads), error=grave.error, tags=grave.tags, tenant=self.state.tenants.get(id)
        )

    def _remember(self, id: str, kept: Kept) -> None:
        """What was known of a job that is back, unless more is known of its id by now."""
        state = self.state
        if kept.error is not None:
            state.errors.setdefault(id, kept.error)
        if kept.crashes is not None:
            state.crashes.setdefault(id, kept.crashes)
        if kept.crowds is not None:
            state.crowds.setdefault(id, kept.crowds)
        if kept.checkpoint is not None:
            state.checkpoints.setdefault(id, kept.checkpoint)

    @staticmethod
    def _move(source: Payloads, target: Payloads, most: int, keep: str = "") -> None:
        """All at once where one of both is small, else at most so many of the lowest; the rule is the target's."""
        several = len(source) > 1 and len(target) > 1
        moving = dict(lowest_first(source)[: most if several else None])
        merge(target, moving, keep)
        for payload in moving:
            del source[payload]


def _sorted(payloads: Payloads) -> tuple[tuple[bytes, int], ...]:
    return tuple(sorted(payloads.items()))
