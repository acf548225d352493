"""WorkerThread: takes shards that are due, runs their jobs, and settles these together with its next claims."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Final

from redis.exceptions import RedisError

from lowkiq import clock
from lowkiq.errors import LowkiqError
from lowkiq.node.job_thread import JobThread
from lowkiq.node.leases.claim_size import MOST_SHARDS
from lowkiq.node.leases.lease import Lease
from lowkiq.node.leases.relief import Relief
from lowkiq.node.leases.thread_claim import ThreadClaim
from lowkiq.node.places import Place, Places
from lowkiq.node.pool import LASTING, Pool
from lowkiq.node.rated import Rated
from lowkiq.node.round_trip import RoundTrip
from lowkiq.node.runtime import Runtime
from lowkiq.node.suspects.suspects import Suspects
from lowkiq.node.suspects.trials import Trials
from lowkiq.queue.claims import Handed

#: Seconds after which a thread is stuck in a batch that was to stop, by a cancel or its perform_timeout.
STUCK: Final = 1.0
#: A thread's hand lasts after so many times what a batch may take, however quick its batches are.
BATCHES = 2.5


class WorkerThread(JobThread):
    """
    Runs shards of its pool, one turn after the other. Others settle for it while it is inside a job, under `settling`.

    While a batch takes long, other threads run what it has not started, and what else is due in its shards.
    """

    def __init__(self, number: int, pool: Pool, runtime: Runtime, trials: Trials | None = None) -> None:
        super().__init__(f"lowkiq-worker-{number}", pool, runtime, trials or Trials(runtime.page))
        self._relief = Relief(runtime.caller)
        #: Seconds after which it takes the batches of others for slow.
        self._patience = self._long = runtime.settings.claim_window
        #: Tells what it runs.
        self.seat = runtime.page.seat(number)
        self._rated = Rated(runtime, self)
        self._suspects = Suspects(runtime, self, self.trials, self._rated.perform)
        self._hand: Sequence[ThreadClaim] = ()
        #: Lets it run batches of a queue with `max_running`, one at a time.
        self._place: Place | None = None
        #: Since when it performs what it has in hand (monotonic).
        self._since = self._lasting_since = 0.0

    # ── for other threads ───────────────────────────────────────────────────────────────────────────────────────────

    @property
    def in_hand(self) -> list[ThreadClaim]:
        """The claims that are to be performed, or are performed and not yet settled."""
        return [claim for claim in self._hand if not claim.is_over]

    def is_inside(self, now: float, seconds: float) -> bool:
        """Returns whether a batch has taken that long already."""
        return any(claim.running and now - claim.running_since >= seconds for claim in self.in_hand)

    def is_stuck(self, now: float) -> bool:
        """Returns whether it is in a batch that was to stop, and has not."""
        since = [claim.to_stop_since for claim in self.in_hand if claim.running]
        return any(at is not None and now - at >= STUCK for at in since)

    def lasts_at(self, patience: float) -> float:
        """When what it has in hand lasts, at a batch of so many seconds (monotonic); inf while that can't be told."""
        since = next((claim.running_since for claim in self._hand if claim.running), math.inf)
        if since + patience <= clock.monotonic():
            self._lasting_since = since
        if since == self._lasting_since:  # once somebody has found that a batch lasts, all know
            return since
        return min(since + patience, self._since + patience * BATCHES) if since < math.inf else math.inf

    # ── its loop ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _step(self) -> None:
        """One round: pick, exchange with Redis, perform."""
        if self._pick_and_exchange():
            self._perform()

    def _pick_and_exchange(self) -> bool:
        """Returns whether there are jobs to perform."""
        now = clock.monotonic()
        if self._hand and not self.is_leaving:
            self._answer(self.pool.glance(self, now))
        picked = self._pick_several(now)
        if self._place and not (picked and picked[0].places is self._place.owner):
            self._give_places()
        # What was performed is settled first.
        if not self._hand and (picked or self._is_quiet):
            heard = self.pool.resign(self) if picked else self.pool.hush(self)
            if handed := self._answer(heard):
                self._give_way(picked, handed)
                return True
        self._is_calm = self._is_quiet
        polled = [] if self.is_leaving else self.pool.due_for_poll(now)
        if not picked and not self._hand and not polled:
            return self._wait()
        try:
            has_jobs = self._exchange(picked, polled)
        except (RedisError, LowkiqError) as error:
            self._wait_for_redis(picked, error)
            return False
        self._note_success(polled=bool(polled))
        return has_jobs

    def _perform(self) -> None:
        """Runs what is in hand. Once jobs turn out slow, those of the other shards go back as well."""
        suspects = [claim for claim in self._hand if claim.crowds]
        others = [claim for claim in self._hand if not claim.crowds] if suspects else self._hand
        if others:
            self._perform_all(others)
        for claim in suspects:
            self._since = clock.monotonic()
            self._suspects.perform(claim)

    def _perform_all(self, claims: Sequence[ThreadClaim]) -> None:
        if not self.trials.enter(self):
            for claim in claims:
                claim.give_back()
            return
        try:
            self._since = clock.monotonic()
            for claim in claims:
                perform = partial(self._rated.perform, claim) if claim.is_rated else claim.perform
                if not perform(self._since, self.seat):
                    break
        finally:
            self.trials.leave(self)

    def _pick_several(self, now: float) -> list[Lease]:
        """
        Picks shards that share a round trip. One with slow jobs comes last: no other waits behind it. One that is rung
        meanwhile is picked once: its claims would share a turn, which ends with the first of them that is over.
        """
        if self.pool.shares:
            self.pool.end(self, [(claim.lease, claim.take_seconds()) for claim in self._hand])
        if self.is_leaving:
            return []
        for claim in self._hand:  # the next claim goes along with the settle
            self.pool.keep(claim.lease, self._since)
        if self._place:
            self._place.owner.turn(self.pool)
        picked: dict[Lease, None] = {}
        most = MOST_SHARDS
        while len(picked) < most and (lease := self._pick(now, is_first=not picked)):
            picked[lease] = None
            # While it has a place it runs nothing else.
            most = 1 if lease.places else min(most, lease.claim_size.shards)
        return list(picked)

    def _pick(self, now: float, *, is_first: bool) -> Lease | None:
        while lease := self.pool.pick(now):
            if lease.places and not is_first:
                self.pool.look(lease, now)
                return None
            if lease.holds(lease.epoch) and not lease.is_wanted:
                if self._take(lease) and (lease.places is None or self._get_place(lease, lease.places)):
                    if self.pool.shares:
                        self.pool.begin(self, lease)
                    return lease
            else:
                lease.unpark()  # not ours now: the lease keeper wakes us when it is again
        return None

    def _get_place(self, lease: Lease, places: Places) -> bool:
        """Gets a place for a shard, or has it wait for one."""
        has = self._place
        got = places.take([has] if has and has.owner is places else [], 1)
        if has and has.owner is places:
            self._place = None
        if not got:
            if all(claim.lease is not lease for claim in self._hand):
                lease.leave(self)
            places.park(lease, self.pool)
            return False
        self._give_places()  # of another queue
        self._place = got[0]
        places.unpark(lease)
        return True

    def _give_places(self) -> None:
        place, self._place = self._place, None
        if place:
            place.owner.give([place])

    def _take(self, lease: Lease) -> bool:
        """Takes a turn at a shard, if it may; and from others there what they have claimed and can't start soon."""
        if any(claim.has_unstarted for claim in lease.in_hand):
            try:
                self._relief.take_rest(lease, self.pool.threads, self._patience)
            except RedisError as error:
                self._runtime.outage.met(error)
        look_at = lease.take(self, self._patience)
        if 0.0 < look_at < math.inf:
            # Who has nothing else to do may believe it earlier.
            self.pool.look(lease, min(look_at, clock.monotonic() + LASTING))
        return not look_at

    def _wait(self) -> bool:
        """Waits until there is something to do; returns whether jobs came with the ring."""
        heard, self._patience = self.pool.rest(self, is_idle=not self.is_leaving)
        return self._answer(heard) is not None

    def _take_handed(self, lease: Lease, handed: Handed) -> bool:
        claim = None if self._hand or lease.places else ThreadClaim.of_ring(lease, handed, self, self.seat)
        if not claim:
            return False
        self._hand = [claim]
        if self.pool.shares:
            self.pool.begin(self, lease)
        self.pool.watch(lease, clock.monotonic())
        self.pool.resign(self)
        return True

    def _give_way(self, picked: Sequence[Lease], handed: Lease) -> None:
        """Puts picked shards off for one whose jobs are here already."""
        for lease in picked:
            if lease is not handed:
                lease.leave(self)
                self.pool.wake(lease, clock.monotonic())

    # ── one round trip ──────────────────────────────────────────────────────────────────────────────────────────────

    def _exchange(self, picked: Sequence[Lease], polled: Sequence[Lease]) -> bool:
        """Settles the last claims, makes the next, and polls. Returns whether there are jobs to perform."""
        with self.settling:
            done = self.in_hand
            # Until here others may have taken back what was picked, and run it by now.
            picked = [lease for lease in picked if not lease.take(self, self._patience)]
            self._patience = self._long
            trip = RoundTrip(self._runtime.caller, self.pool, self, self.seat, ThreadClaim)
            try:
                trip.make(done, picked, polled and self.pool.holding(polled))
            finally:
                for settled in trip.settled:
                    self.count(settled)
                # A settle that was not confirmed is repeated.
                if self._place:
                    for claim in trip.claimed:
                        claim.places = (self._place,)
                self._hand = trip.claimed or [claim for claim in done if not claim.is_over]
                in_hand = {claim.lease for claim in self._hand}
                for lease in {claim.lease for claim in done}.union(picked) - in_hand:
                    lease.leave(self)
        return bool(trip.claimed)
