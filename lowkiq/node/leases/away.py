"""AwayClaims: claims that a node still runs of shards that it has left. What becomes of them it tells as ever."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from redis.exceptions import RedisError

from lowkiq.log import get_logger
from lowkiq.node.leases.claim_in_hand import ClaimInHand
from lowkiq.node.leases.lease import Lease
from lowkiq.node.runtime import Runtime
from lowkiq.queue.call import chunked, raise_first
from lowkiq.queue.shard import CANCELS, LOST, Released, Restored, renew_away

logger = get_logger()


class Worker(Protocol):
    """A thread, as far as it has claims in hand."""

    @property
    def in_hand(self) -> Sequence[ClaimInHand]: ...


class AwayClaims:
    """Has shards be left while their jobs run, keeps the leases of what runs, and takes back what others ran."""

    def __init__(self, runtime: Runtime, workers: Sequence[Worker]) -> None:
        self._runtime, self._workers = runtime, workers

    @property
    def in_hand(self) -> list[ClaimInHand]:
        return [claim for thread in self._workers for claim in thread.in_hand if claim.is_away]

    def leave(self, leases: Iterable[Lease]) -> dict[Lease, str]:
        """
        Releases those of these shards that are ours, be jobs running. Returns those that nobody has now, each with the
        node that stands by for it, and was told, or "". Raises RedisError: some may be ours still.
        """
        leaving = [(lease, *left) for lease in leases if (left := lease.leave_call())]
        try:
            results = self._runtime.caller.run_all([call for _, _, call in leaving])
        except RedisError:
            for lease, epoch, _ in leaving:
                lease.not_left(epoch)
            raise
        released: dict[Lease, str] = {}
        for (lease, epoch, _), result in zip(leaving, results, strict=True):
            if isinstance(result, RedisError):
                lease.not_left(epoch)
            elif isinstance(result, Released):  # else it was lost already
                released[lease] = result.told
        raise_first([result for result in results if isinstance(result, RedisError)])
        return released

    def restore(self, leases: Sequence[Lease]) -> dict[Lease, Restored]:
        """Returns to the queue what earlier owners of our shards ran, where they are gone. Raises RedisError."""
        runtime = self._runtime
        dead, most = runtime.dead_nodes() if leases else [], runtime.settings.max_crashes
        owned = [(lease, epoch) for lease in leases if (epoch := lease.epoch) is not None]
        calls = [lease.shard.restore_away(runtime.node, epoch, most, dead) for lease, epoch in owned]
        results, found = runtime.caller.run_all(calls), dict[Lease, Restored]()
        for (lease, epoch), result in zip(owned, results, strict=True):
            if isinstance(result, Restored):
                found[lease] = result
                if result.restored or result.buried:
                    log = logger.bind(queue=lease.shard.queue, shard=lease.shard.index)
                    log.warning("claim_restored", restored=result.restored, buried=result.buried)
            else:
                lease.refused(epoch, result)
        return found

    def renew(self, now: float) -> set[Lease]:
        """Renews what runs. Returns the shards of which jobs were cancelled. Raises RedisError."""
        runtime, ttl = self._runtime, self._runtime.settings.lease_ttl
        groups = list(chunked(self.in_hand, runtime.caller.shards_a_call))
        calls = [
            renew_away([(claim.shard, claim.epoch, claim.number) for claim in group], runtime.node, ttl)
            for group in groups
        ]
        results, cancelled = runtime.caller.run_all(calls), set[Lease]()
        for group, kept in zip(groups, results, strict=True):
            for claim, reply in zip(group, kept if isinstance(kept, list) else (), strict=False):
                if reply != LOST:
                    claim.renewed(now, ttl)
                elif claim.lost():
                    logger.warning("lease_lost", queue=claim.shard.queue, shard=claim.shard.index, epoch=claim.epoch)
                    runtime.incidents.lost(claim.shard)
                if reply & CANCELS:
                    cancelled.add(claim.lease)
        raise_first(results)
        return cancelled
