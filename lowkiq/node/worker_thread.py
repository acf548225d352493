"""WorkerThread: picks shards, runs them, and settles them together with the next claims in one round trip."""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Sequence
from operator import attrgetter

from redis.exceptions import RedisError

from lowkiq import clock
from lowkiq.hooks import Scheduler
from lowkiq.node.claim_in_hand import ClaimInHand
from lowkiq.node.claim_size import MOST_SHARDS
from lowkiq.node.lease import Lease
from lowkiq.node.round_trip import RoundTrip
from lowkiq.node.runtime import Runtime
from lowkiq.node.suspects.isolation import Isolation
from lowkiq.node.suspects.suspects import Suspects
from lowkiq.queue.bell import Heard, ListBell, LocalBell
from lowkiq.queue.shard import Settled
from lowkiq.queue.watch import Watch

#: Seconds between tries while Redis is away or refuses: it grows to the second figure, with jitter.
RETRY_FROM, RETRY_TO = 0.05, 1.0


class WorkerThread(threading.Thread):
    """
    Runs a group of shards. The lease keeper settles for it while it is inside a job, under `settling`.

    While a batch takes long, the other shards of its thread wait. Threads that poll meanwhile find their jobs, and run
    them: a shard keeps its own thread, which is rung, but has another from one claim to the next.
    """

    def __init__(
        self,
        number: int,
        leases: Sequence[Lease],
        scheduler: Scheduler[Lease],
        runtime: Runtime,
        bell: ListBell | LocalBell | None = None,
        isolation: Isolation | None = None,
    ) -> None:
        super().__init__(name=f"lowkiq-worker-{number}", daemon=True)
        self.leases = leases
        #: The threads whose shards it runs when they can't.
        self.others: Sequence[WorkerThread] = ()
        self._runtime = runtime
        self._scheduler = scheduler
        self._poll_interval = runtime.settings.poll_interval
        self._inbox: deque[tuple[Lease, float]] = deque()
        self._bell = bell or LocalBell()
        self._by_prefix = {lease.shard.prefix.encode(): lease for lease in leases}
        self._is_stopping = self._is_quiet = self._is_calm = self._is_exchanging = False
        self._next_poll_at = 0.0
        self._watch = Watch[Lease](runtime.caller, attrgetter("shard"))
        self._retry_delay = RETRY_FROM
        #: Tells what it runs.
        self.seat = runtime.page.seat(number)
        #: Shared by all threads of the node.
        self.isolation = isolation or Isolation()
        self._suspects = Suspects(runtime, self, self.isolation)
        self._hand: Sequence[ClaimInHand] = ()
        #: Held while settles of what it has in hand are on their way, so that two never cross.
        self.settling = threading.Lock()
        self.processed = self.failed = 0

    # ── for other threads ───────────────────────────────────────────────────────────────────────────────────────────

    @property
    def in_hand(self) -> list[ClaimInHand]:
        """The claims that are to be performed, or are performed and not yet settled."""
        return [claim for claim in self._hand if not claim.is_over]

    def wake(self, lease: Lease, due_at: float) -> None:
        """Tells the thread that a shard has a job due then (monotonic)."""
        self._inbox.append((lease, due_at))
        self._bell.ring()

    def poll_soon(self) -> None:
        """Has the thread poll at once: bells may have been missed."""
        self._next_poll_at = 0.0
        self._bell.ring()

    def quiet(self) -> None:
        """Has the thread claim nothing more, and get nothing handed over."""
        self._is_quiet = True
        self._bell.ring()

    @property
    def is_calm(self) -> bool:
        """True once a quiet thread gets nothing handed over any more: it said so, or runs a job."""
        return self._is_calm or bool(self._hand)

    @property
    def is_leaving(self) -> bool:
        """True if it is to begin nothing more."""
        return self._is_stopping or self._is_quiet

    def stop(self) -> None:
        """Ends the thread after the batch in hand."""
        self._is_stopping = True
        self._bell.ring()

    def count(self, settled: Settled) -> None:
        """Counts jobs settled for this thread, by itself or by the lease keeper. The caller holds `settling`."""
        self.processed += settled.acked
        self.failed += settled.failed

    def may_touch(self, lease: Lease) -> bool:
        """Returns whether a thread that was told to stop may still send something for that shard."""
        return self.is_alive() and (self._is_exchanging or any(claim.lease is lease for claim in self.in_hand))

    def is_inside(self, now: float, seconds: float) -> bool:
        """Returns whether a batch has taken that long already."""
        return any(claim.running and now - claim.running_since >= seconds for claim in self.in_hand)

    def stuck(self, now: float) -> Sequence[Lease]:
        """The shards that wait behind a batch that takes long."""
        if not self.is_inside(now, self._poll_interval):
            return ()
        return [lease for lease in self.leases if lease.runner is not self]

    # ── its loop ────────────────────────────────────────────────────────────────────────────────────────────────────

    def run(self) -> None:
        try:
            while not self._is_stopping or self._hand:
                self._step()
            self._bell.close()
        except BaseException as error:  # noqa: BLE001 (a thread must not die unnoticed: its shards would stand still)
            self._runtime.fatal(error)

    def _step(self) -> None:
        """One round: read the inbox, pick, exchange with Redis, perform."""
        self._read_inbox()
        self._is_exchanging = True
        try:
            has_jobs = self._pick_and_exchange()
        finally:
            self._is_exchanging = False
        if has_jobs:
            self._perform()

    def _read_inbox(self) -> None:
        while self._inbox:
            self._scheduler.note(*self._inbox.popleft())

    def _pick_and_exchange(self) -> bool:
        """Returns whether there are jobs to perform."""
        now = clock.monotonic()
        picked = self._pick_several(now)
        # What was performed is settled first.
        is_free = not self._hand and (picked or self._is_quiet)
        if is_free and self._bell.is_idle and (handed := self._answer(self._bell.be_busy())):
            self._give_way(picked, handed)
            return True
        self._is_calm = self._is_quiet
        polled = self._due_for_poll(now)
        if not picked and not self._hand and not polled:
            return self._wait(now)
        try:
            has_jobs = self._exchange(picked, polled)
        except RedisError as error:
            self._wait_for_redis(picked, error)
            return False
        self._runtime.outage.over()
        self._retry_delay = RETRY_FROM
        return has_jobs

    def _perform(self) -> None:
        """Runs what is in hand. Once jobs turn out slow, those of the other shards go back as well."""
        others = [claim for claim in self._hand if not claim.crowds]
        if len(others) < len(self._hand):
            for claim in self._hand:
                if claim.crowds:
                    self._suspects.perform(claim)
        if not others:
            return
        if not self.isolation.enter(self):
            for claim in others:
                claim.give_back()
            return
        try:
            since = clock.monotonic()
            for claim in others:
                if not claim.perform(since, self.seat):
                    break
        finally:
            self.isolation.leave(self)

    def _pick_several(self, now: float) -> list[Lease]:
        """Picks shards that share a round trip. One with slow jobs comes last: no other waits behind it."""
        picked: list[Lease] = []
        most = MOST_SHARDS
        while len(picked) < most and (lease := self._pick(now)):
            picked.append(lease)
            most = min(most, lease.claim_size.shards)
        return picked

    def _pick(self, now: float) -> Lease | None:
        if self._is_stopping or self._is_quiet:
            return None
        while lease := self._scheduler.pick(now):
            if lease.has_suspects and (turn_at := self.isolation.busy_until(now)):
                self._scheduler.note(lease, turn_at)
            elif lease.holds(lease.epoch) and not lease.is_wanted and lease.take(self):
                return lease
            # Not ours now: the lease keeper wakes us when it is again; and what another thread leaves, a poll finds.
        return None

    def _due_for_poll(self, now: float) -> list[Lease]:
        if now < self._next_poll_at or self._is_stopping or self._is_quiet:
            return []
        self._next_poll_at = now + self._poll_interval
        stuck = [lease for thread in self.others for lease in thread.stuck(now)]
        return [lease for lease in (*self.leases, *stuck) if lease.epoch]

    def _wait(self, now: float) -> bool:
        """Waits until there is something to do; returns whether jobs came with the ring."""
        due_at = self._scheduler.next_due_at()
        until = min(self._next_poll_at, self._next_poll_at if due_at is None else due_at)
        if self._is_quiet:
            until = now + self._poll_interval
        is_idle = not (self._is_quiet or self._is_stopping)
        return self._answer(self._bell.wait(max(until - now, 0.0), is_idle=is_idle)) is not None

    # ── the bell ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _answer(self, heard: Heard) -> Lease | None:
        """Acts on a ring. Returns the shard whose jobs came with it, and are in hand now."""
        now = clock.monotonic()
        if heard.is_unsure:
            for lease in self.leases:
                if lease.is_open:  # what was handed over is found, and given back, by claims
                    self._scheduler.note(lease, now)
        ring = heard.ring
        rung = self._by_prefix.get(ring.shard) if ring else None
        if not (ring and rung):
            return None
        if ring.handed and (claim := ClaimInHand.of_ring(rung, ring.handed, self, self.seat)):
            self._inbox.append((rung, now))  # as after any claim, but noted once the job is done, which waits
            self._hand = [claim]
            return rung
        self._scheduler.note(rung, now + ring.due_in)
        return None

    def _give_way(self, picked: Sequence[Lease], handed: Lease) -> None:
        """Puts picked shards off for one whose jobs are here already."""
        for lease in picked:
            if lease is not handed:
                self._scheduler.note(lease, clock.monotonic())
                lease.leave(self)

    # ── one round trip ──────────────────────────────────────────────────────────────────────────────────────────────

    def _exchange(self, picked: Sequence[Lease], polled: Sequence[Lease]) -> bool:
        """Settles the last claims, makes the next, and polls. Returns whether there are jobs to perform."""
        trip = RoundTrip(self._runtime.caller, self._scheduler, self.seat)
        with self.settling:
            done = self.in_hand
            # Until here the lease keeper may have taken back what was picked, and another thread may run it by now.
            picked = [lease for lease in picked if lease.take(self)]
            try:
                trip.make(done, picked, self._watch.holding(polled))
            finally:
                for settled in trip.settled:
                    self.count(settled)
                # A settle that was not confirmed is repeated.
                self._hand = trip.claimed or [claim for claim in done if not claim.is_over]
                for lease in (*(claim.lease for claim in done), *picked):
                    if not lease.is_busy:
                        lease.leave(self)
        return bool(trip.claimed)

    def _wait_for_redis(self, picked: Sequence[Lease], error: RedisError) -> None:
        """Redis is gone, or refuses to write: keep the outcomes, and try for ever."""
        self._runtime.outage.met(error)
        for lease in picked:
            self._scheduler.note(lease, clock.monotonic())
        # Sleeps through bells: they bring nothing while Redis is gone.
        time.sleep(self._retry_delay * random.uniform(0.5, 1.5))  # noqa: S311 (spreads load)
        self._retry_delay = min(self._retry_delay * 2, RETRY_TO)
