"""
LeaseKeeper: acquires and renews the leases of the node's shards, settles for threads inside a long job, asks jobs to
stop that were cancelled, and has paused shards rest.
"""

from __future__ import annotations

import math
import random
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from redis.exceptions import RedisError

from lowkiq import clock
from lowkiq.errors import LowkiqError, Moved, OtherLayout
from lowkiq.log import get_logger
from lowkiq.node.job_thread import JobThread
from lowkiq.node.leases.away import AwayClaims
from lowkiq.node.leases.lease import Lease
from lowkiq.node.leases.relief import Relief
from lowkiq.node.leases.thread_claim import ThreadClaim
from lowkiq.node.pool import Pool
from lowkiq.node.runtime import Runtime
from lowkiq.queue.call import chunked, raise_first
from lowkiq.queue.shard import (
    AWAY,
    CANCELS,
    LETTERS,
    LOST,
    PAUSED,
    RECURS,
    WAITS,
    WANTED,
    Held,
    Owned,
    renew,
)  # fmt: skip

logger = get_logger()

#: Renewals in a lease's time: two of three may be lost.
RENEWALS_A_TTL = 3
#: Seconds between tries for a shard that another node holds. It may be given back at any moment.
ACQUIRE_INTERVAL = 1.0
#: Shards that are tried for in one round trip.
ACQUIRES_AT_ONCE = 200


class LeaseKeeper(threading.Thread):
    """One thread of a node. `pools` has each lease with its pool, which is woken when the shard is ours."""

    def __init__(self, runtime: Runtime, pools: Mapping[Lease, Pool], workers: Sequence[JobThread]) -> None:
        super().__init__(name="lowkiq-lease-keeper", daemon=True)
        self._pools = pools  # it changes (following.py): whoever goes through it takes a copy first
        self._workers = workers
        self._trials = {thread.trials for thread in workers}
        self._relief = Relief(runtime.caller)
        self._runtime = runtime
        self._caller = runtime.caller
        self._settings = runtime.settings
        self._wake = threading.Event()
        self._is_stopping = self._is_draining = False
        #: Shards that nobody has, as the node was told.
        self._asked: deque[Lease] = deque()
        #: Shards with cancelled jobs, as the node was told.
        self._rung: deque[Lease] = deque()
        self._cancelled: set[Lease] = set()
        #: Shards that somebody has paused, as the node was told.
        self._paused: deque[Lease] = deque()
        #: Claims that the node still runs of shards that it has left.
        self._away = AwayClaims(runtime, workers)
        #: Shards of which earlier owners still run claims.
        self._shared: set[Lease] = set()
        self._wanted: list[Lease] = []
        #: Shards that their own nodes ask for, as the node was told.
        self._wants: deque[Lease] = deque()
        self._renew_at = self._acquire_at = 0.0
        #: Set once every shard has been tried for.
        self.has_tried = threading.Event()

    def take_over(self, lease: Lease) -> None:
        """Asks for a shard that has just become free, or to stand in for the node whose part it is."""
        self._asked.append(lease)
        self._wake.set()

    def cancel(self, lease: Lease) -> None:
        """Asks for jobs of a shard that were cancelled to stop."""
        self._rung.append(lease)
        self._wake.set()

    def pause(self, lease: Lease) -> None:
        """Has a paused shard rest."""
        self._paused.append(lease)
        self._wake.set()

    def want(self, lease: Lease) -> None:
        """Gives a shard back whose own node asks for it."""
        self._wants.append(lease)
        self._wake.set()

    def look_soon(self) -> None:
        """Has it renew, and learn what others want, and acquire at once: the node's part has changed."""
        self._renew_at = self._acquire_at = 0.0
        self._wake.set()

    def drain(self) -> None:
        """Acquires no more; keeps what is still worked on."""
        self._is_draining = True

    def stop(self) -> None:
        self._is_stopping = True
        self._wake.set()

    def run(self) -> None:
        failing_since = math.inf
        while not self._is_stopping:
            self._wake.clear()
            try:
                self._round()
                failing_since = math.inf
            except BaseException as error:  # noqa: BLE001 (what one round meets, the next one need not)
                self._runtime.mishaps.met("lease_keeper_failed", error, "it tries again; without renewals leases end")
                now = clock.monotonic()
                failing_since = min(failing_since, now)
                if now - failing_since > self._settings.lease_ttl:  # it has lost its shards: better to stop
                    self._runtime.fatal(error)
                    return
                self._wake.wait(ACQUIRE_INTERVAL)
                continue
            self._wake.wait(self._until_next_round())

    def _round(self) -> None:
        now = clock.monotonic()
        try:
            if now >= self._renew_at:
                self._renew_at = now + self._settings.lease_ttl / RENEWALS_A_TTL
                self._keep_places()  # first: who was paused starts nothing more while leases have run out
                try:
                    self._renew(now)
                finally:
                    self._cancelled.update(self._away.renew(now))
            if now >= self._acquire_at:
                self._acquire_at = now + ACQUIRE_INTERVAL * random.uniform(0.8, 1.2)  # noqa: S311 (spreads load)
                if not self._is_draining:
                    missing = [lease for lease in list(self._pools) if lease.epoch is None and not lease.is_foster]
                    self._acquire(missing, now)
                    self.has_tried.set()
                self._restore_away()
            asked = [self._asked.popleft() for _ in range(len(self._asked))]
            if not self._is_draining:
                self._acquire(asked, now)
            self._rest()
            self._cancel()
            self._give_back()
            self._let_others_run()
            self._away.settle()
            self.settle_late(self._settings.claim_window / 2)
        except RedisError as error:
            # The leases are tried again well before they run out.
            self._runtime.outage.met(error)
            self._renew_at = min(self._renew_at, now + ACQUIRE_INTERVAL)

    def _until_next_round(self) -> float:
        """Half a claim window while jobs run, so that an outcome waits at most one window; else until there is work."""
        if self._runtime.in_transit or any(thread.in_hand for thread in self._workers):
            return self._settings.claim_window / 2
        next_at = min(self._renew_at, self._acquire_at)
        # A thread that starts a long job doesn't wake us: it would cost every short one. So check now and then.
        return max(min(next_at - clock.monotonic(), self._settings.claim_window), 0.001)

    def _keep_places(self) -> None:
        """Has nothing more start of claims whose places are lost."""
        limited = [places for places in self._runtime.places.values() if places.most is not None]
        dead = [dead.name for dead in self._runtime.dead_nodes()] if limited else ()
        lost = [place for places in limited for place in places.keep(dead)]
        for claim in (claim for thread in self._workers for claim in thread.in_hand) if lost else ():
            if any(place.is_lost for place in claim.places):
                claim.give_back()

    # ── renew, and give back ────────────────────────────────────────────────────────────────────────────────────────

    def _renew(self, now: float) -> None:
        owned = [(lease, lease.epoch) for lease in list(self._pools) if lease.epoch is not None]
        groups = list(chunked(owned, self._caller.shards_a_call))
        node, ttl = self._runtime.node, self._settings.lease_ttl
        results = self._caller.run_all(
            [renew([lease.shard for lease, _ in group], node, [epoch for _, epoch in group], ttl) for group in groups]
        )
        for group, kept in zip(groups, results, strict=True):
            if not isinstance(kept, Exception):
                for (lease, epoch), reply in zip(group, kept, strict=True):
                    self._note_renewed(lease, epoch, reply, now)
        self._wanted = [lease for lease, _ in owned if lease.is_wanted]
        # Only now: of a cluster, one server may be away while the others have kept their leases.
        raise_first(results)
        if owned:
            self._runtime.outage.over()

    def _note_renewed(self, lease: Lease, epoch: str, reply: int, asked_at: float) -> None:
        if reply != LOST:
            was_late = not lease.holds(epoch)
            if reply & PAUSED:
                lease.rest()  # before a lease that had run out is ours again: a pause does not wait for such
                self._paused.append(lease)
            lease.renewed(asked_at, is_wanted=bool(reply & WANTED))
            if reply & CANCELS:
                self._cancelled.add(lease)
            if reply & LETTERS:
                self._runtime.letters.note(lease)
            if reply & WAITS:
                self._runtime.waits.note(lease)
            if reply & RECURS:
                self._runtime.recurring.note(lease)
            if reply & AWAY:
                self._shared.add(lease)
            if was_late:
                self._pools[lease].wake(lease, asked_at)
        elif lease.lost(epoch):
            logger.warning("lease_lost", queue=lease.shard.queue, shard=lease.shard.index, epoch=epoch)
            self._runtime.incidents.lost(lease.shard)

    def _give_back(self) -> None:
        """Returns shards to the nodes whose part they are. What runs of them goes on."""
        wants = [self._wants.popleft() for _ in range(len(self._wants))]
        self._wanted += [lease for lease in wants if lease.want()]
        self._wanted = [lease for lease in self._wanted if lease.is_wanted]
        left = self._away.leave(self._wanted)
        self._wanted = [lease for lease in self._wanted if lease.epoch is not None]
        for lease in left:
            logger.debug("foster_ended", queue=lease.shard.queue, shard=lease.shard.index)
        for thread in self._workers if left else ():
            self._relief.settle_left(thread, left)

    # ── shards that are paused ──────────────────────────────────────────────────────────────────────────────────────

    def _rest(self) -> None:
        """Has nothing more of them start, and then says so. Renewals tell again of those for which that fails."""
        paused = dict.fromkeys(self._paused.popleft() for _ in range(len(self._paused)))
        calls = [(lease, lease.epoch or "", call) for lease in paused if (call := lease.rest())]
        results = self._caller.run_all([call for _, _, call in calls])
        for (lease, epoch, _), result in zip(calls, results, strict=True):
            if isinstance(result, Exception):
                lease.refused(epoch, result)
            elif result:
                logger.info("paused", queue=lease.shard.queue, shard=lease.shard.index)

    # ── jobs that were cancelled ────────────────────────────────────────────────────────────────────────────────────

    def _cancel(self) -> None:
        """
        Has claims stop what was cancelled in them. Each is asked for alone, since a claim made meanwhile may hold the
        same ids: of one whose reply is on its way the next renewal tells.
        """
        self._cancelled.update(self._rung.popleft() for _ in range(len(self._rung)))
        if not self._cancelled:
            return
        shards = {lease.shard.prefix for lease in self._cancelled}
        asked = [
            (claim, home)
            for thread in self._workers
            for claim in thread.in_hand
            for home in claim.homes.all
            if claim.lease in self._cancelled or home.shard.prefix in shards
        ]
        results = self._caller.run_all([home.shard.cancels(claim.epoch, home.number) for claim, home in asked])
        self._cancelled.clear()
        for (claim, _), result in zip(asked, results, strict=True):
            if not isinstance(result, Exception):  # one of another type is told of by others
                claim.cancel(result)

    # ── acquire ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _acquire(self, leases: Sequence[Lease], now: float) -> None:
        missing = [lease for lease in leases if self._may_acquire(lease)]
        dead = self._runtime.dead_nodes() if missing else []
        for group in chunked(missing, ACQUIRES_AT_ONCE):
            again = [call for lease in group for call in lease.leave_again_calls()]
            results = self._caller.run_all([*again, *(lease.acquire_call(dead) for lease in group)])[len(again) :]
            for lease, result in zip(group, results, strict=True):
                if isinstance(result, LowkiqError) and not isinstance(result, OtherLayout):
                    self._runtime.mishaps.met(
                        "acquire_refused", result, "it is tried again", queue=lease.shard.queue, shard=lease.shard.index
                    )
                elif not isinstance(result, RedisError):
                    self._note_acquired(lease, result, now)
            raise_first([result for result in results if isinstance(result, RedisError)])
            self._runtime.outage.over()

    def _may_acquire(self, lease: Lease) -> bool:
        queue = lease.shard.queue
        # Else a failover has lost the reshard, and perhaps the mark.
        is_moved = lease.is_moved and self._runtime.layouts[queue].is_moving
        is_refused = is_moved or self._runtime.refusals.has(queue)
        return lease.epoch is None and not (lease.has_lost or is_refused)

    def _note_acquired(self, lease: Lease, result: Any, asked_at: float) -> None:
        log = logger.bind(queue=lease.shard.queue, shard=lease.shard.index)
        if isinstance(result, Owned):
            self._note_owned(lease, result, asked_at, log)
        elif isinstance(result, Held):
            if lease.stand_by(result.holder):
                log.debug("standing_by", waits_for=result.holder, lease_ends_in=round(result.rest, 1))
        elif isinstance(result, Moved):
            lease.is_moved = True
        if not lease.is_foster:
            self._runtime.refusals.of_shard(lease.shard, result if isinstance(result, OtherLayout) else None)

    def _note_owned(self, lease: Lease, owned: Owned, asked_at: float, log: Any) -> None:
        lease.acquired(owned, asked_at)
        if lease.is_foster:
            log.debug("foster")
        if owned.has_letters:
            self._runtime.letters.note(lease)
        if owned.has_parked:
            self._runtime.parked.note(lease)
        if owned.has_away:
            self._shared.add(lease)
        self._runtime.recurring.note(lease)
        if owned.restored or owned.buried:
            log.warning("claim_restored", restored=owned.restored, buried=owned.buried)
        if owned.due_in is not None:
            self._pools[lease].wake(lease, clock.monotonic() + owned.due_in)
        elif lease.rung_at >= asked_at:  # by a push that came since: whoever heard it did not know that it is ours
            self._pools[lease].wake(lease, lease.rung_for)

    # ── what earlier owners still run ───────────────────────────────────────────────────────────────────────────────

    def _restore_away(self) -> None:
        """Returns to the queue what those ran who are gone since. The last claim of a shard ends the look at that."""
        found = self._away.restore([lease for lease in self._shared if lease.epoch is not None])
        self._shared = {lease for lease, result in found.items() if result.away}
        for lease, result in found.items():
            if result.restored or result.buried:
                self._pools[lease].wake(lease, clock.monotonic() + (result.due_in or 0.0))

    # ── others beside a suspect that is tried ──────────────────────────────────────────────────────────────────────

    def _let_others_run(self) -> None:
        """Lets others begin beside a suspect that has had the tree for long, once Redis knows it."""
        for trials in self._trials:
            trials.look()
            if suspect := trials.overdue():
                (result,) = self._caller.run_all([suspect.claim.isolate_call(suspect.id, is_alone=False)])
                if isinstance(result, RedisError):
                    raise result
                trials.share(suspect)

    # ── settle for threads that are inside a job ────────────────────────────────────────────────────────────────────

    def settle_late(self, age: float) -> None:
        """
        Settles what has waited for `age` seconds because its thread is inside a job. If that takes long, the thread's
        other claims end, so that another thread can run their shards.
        """
        for thread in self._workers:
            for claim in thread.in_hand:
                if isinstance(claim, ThreadClaim):
                    claim.note_overdue()
            self._relief.settle_late(thread, age, self._settings.claim_window, self._wake_pool)

    def _wake_pool(self, lease: Lease, due_at: float) -> None:
        self._pools[lease].wake(lease, due_at)
