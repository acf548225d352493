"""Drain: how a node ends, and when one that runs with `burst` does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from redis.exceptions import RedisError

from lowkiq import clock
from lowkiq.admin.beats.members import ask_to_foster
from lowkiq.admin.metrics import ShardMetrics, read_shards
from lowkiq.handlers.stop import Stop
from lowkiq.log import get_logger
from lowkiq.node.job_thread import JobThread, leases_of_threads
from lowkiq.node.lease_keeper import LeaseKeeper
from lowkiq.node.leases.away import AwayClaims
from lowkiq.node.leases.lease import Lease
from lowkiq.node.runtime import Runtime
from lowkiq.node.worker_thread import WorkerThread
from lowkiq.queue.call import SHARDS_A_CALL, chunked
from lowkiq.queue.shard import Shard
from lowkiq.transport.patience import Patience

logger = get_logger()

#: Seconds to wait for a thread that has nothing left to do.
JOIN = 1.0
#: Seconds for what is said to Redis at the end of the time that a drain has, or after it: a supervisor soon kills.
LAST = 0.5


class Drain:
    """
    Hands over the node's shards at once: to the node that stands by for them, or to others that are there, its heirs if
    it knows any. Jobs that run go on. Used by the main thread; the lease keeper goes on renewing what is worked on.
    """

    def __init__(
        self, runtime: Runtime, workers: Sequence[JobThread], keeper: LeaseKeeper, heirs: Mapping[Shard, str]
    ) -> None:
        self._heirs = heirs
        self._workers = workers
        self._keeper = keeper
        self._runtime = runtime
        self._caller = runtime.caller
        self._outage = runtime.outage
        self._away = AwayClaims(runtime, workers)
        #: Redis did not answer when it was last asked.
        self._is_redis_away = False

    def begin(self) -> None:
        """Stops all threads from claiming."""
        self._keeper.drain()
        for thread in self._workers:
            thread.stop()

    def advance(self, until: float) -> bool:
        """
        Keeps jobs in hand from starting, releases shards, and waits for Redis until then (monotonic). Returns whether
        there are others, or jobs that run, or that nobody was told of. Shards without any are not waited for while
        Redis is away: their leases run out.
        """
        for thread in self._workers:
            for claim in thread.in_hand:
                claim.give_back()
        try:
            with Patience(max(until - clock.monotonic(), LAST)):
                if released := self._release():
                    ask_to_foster(self._caller, self._runtime.namespace, released, self._heirs, self._runtime.node)
            self._outage.over()
            self._is_redis_away = False
        except RedisError as error:
            self._outage.met(error, "release_failed")
            self._is_redis_away = True
        is_any_running = any(thread.is_alive() for thread in self._workers)
        owned = [lease for lease in self._owned() if lease.is_busy or not self._is_redis_away]
        return is_any_running or bool(owned or self._runtime.in_transit)

    def cut_short(self) -> bool:
        """Ends jobs that can be ended, tasks and processes, so that they go back. Returns whether there are any."""
        running = [claim for thread in self._workers for claim in thread.in_hand if claim.batches]
        return sum(claim.stop(Stop.DRAINED) for claim in running) > 0

    def end(self) -> int:
        """
        Stops the keeper. Shards that could not be released, and claims that still run, are marked, not given away:
        their leases run out, and whoever comes next restores the claims without counting a crash. Returns of how many
        shards there are jobs that have run, or still run, and are not settled.
        """
        left, away = self._owned(), self._away.in_hand
        busy = dict.fromkeys([*(lease for lease in left if lease.is_busy), *(claim.lease for claim in away)])
        running: dict[Lease, list[str]] = {}
        for claim, batch in (found for thread in self._workers for found in thread.batches):
            running.setdefault(claim.lease, []).extend(job.id for job in batch.running)
        self._keeper.stop()
        self._keeper.join(JOIN)
        unsettled: dict[Lease, list[str]] = {}
        for claim in (claim for thread in self._workers for claim in thread.in_hand):
            unsettled.setdefault(claim.lease, []).extend(claim.unsettled)
        for lease in busy:
            logger.warning(
                "abandoned", queue=lease.shard.queue, shard=lease.shard.index,
                ids=running.get(lease, [])[:10], ended_and_run_again=unsettled.get(lease, [])[:10],
            )  # fmt: skip
        if idle := [lease for lease in left if not lease.is_busy]:
            logger.warning("not_released", shards=len(idle), advice="others take them when their leases end")
        if self._is_redis_away and not busy:
            return 0
        calls = [call for lease in left if (call := lease.abandon_call())]
        # What was to stop, and has not, is a crash: after two it runs in a process of its own, which can be ended.
        calls += [
            home.shard.abandon(self._runtime.node, claim.epoch, home.number)
            for claim in away
            if not (isinstance(claim.thread, WorkerThread) and claim.thread.is_stuck(clock.monotonic()))
            for home in claim.homes.all
        ]
        try:
            with Patience(LAST):
                self._caller.run_all(calls)
        except RedisError as error:
            logger.warning("abandon_failed", error=f"{type(error).__name__}: {error}"[:300])
        return len(busy)

    def _owned(self) -> list[Lease]:
        return [lease for lease in leases_of_threads(self._workers) if lease.epoch is not None]

    def _release(self) -> dict[Shard, str]:
        """Returns the shards that nobody has now, each with the node that stands by, and was told."""
        released: dict[Shard, str] = {}
        for group in chunked(self._owned(), SHARDS_A_CALL):
            released |= {lease.shard: told for lease, told in self._away.leave(group).items()}
        return released


class BurstEnd:
    """
    When a node that runs with `burst` is done: nothing is due or in flight in any queue of the app. That takes all
    shards, since a job may push to a shard of another node.
    """

    def __init__(self, runtime: Runtime, leases: Sequence[Lease]) -> None:
        self._caller = runtime.caller
        self._refusals = runtime.refusals
        self._runtime = runtime
        self._ours = {(lease.shard.queue, lease.shard.index) for lease in leases}
        self._last_quiet: list[int] | None = None
        #: After this, a shard that is not ours and that nobody owns is not waited for: its node isn't there.
        self._others_until = clock.monotonic() + runtime.settings.lease_ttl

    def is_reached(self) -> bool:
        """Returns whether two checks in a row found nothing to do or done in between: one check is not atomic."""
        try:
            metrics = read_shards(self._caller, self._runtime.shards())
        except RedisError:
            return False
        refused = self._refusals.texts()
        boxes = (self._runtime.letters, self._runtime.recurring)
        if not all(box.is_empty for box in boxes) or any(
            self._has_work(shard) for shard in metrics if shard.queue not in refused
        ):
            self._last_quiet = None
            return False
        done = [shard.pushed + shard.processed + shard.failed for shard in metrics]
        was_quiet, self._last_quiet = self._last_quiet == done, done
        return was_quiet

    def _has_work(self, shard: ShardMetrics) -> bool:
        if not shard.busy and (shard.paused or shard.due_in is None or shard.due_in > 0):
            return False
        if (shard.queue, shard.shard) in self._ours or shard.lease_rest > 0:
            return True
        return clock.monotonic() < self._others_until
