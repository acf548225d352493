"""AwayClaims: claims that a node still runs of shards that it has left. What becomes of them it tells as ever."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from redis.exceptions import RedisError

from lowkiq import clock
from lowkiq.errors import Fenced
from lowkiq.log import get_logger
from lowkiq.node.leases.claim_in_hand import ClaimInHand
from lowkiq.node.leases.homes import Home
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
        running = [claim for thread in self._workers for claim in thread.in_hand if claim.is_away]
        return [*running, *self._runtime.in_transit]

    def leave(self, leases: Iterable[Lease]) -> dict[Lease, str]:
        """
        Releases those of these shards that are ours, be jobs running. Returns those that nobody has now, each with the
        node that stands by for it, and was told, or "". Raises RedisError: some may be ours still.
        """
        asked_at = clock.monotonic()
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
            elif isinstance(result, Released):
                lease.left(epoch, asked_at)
                released[lease] = result.told
        if any(isinstance(result, Fenced) for result in results):
            self.renew(asked_at)  # others have it, or this was sent twice, as its reply was lost
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
        asked = ((claim, home) for claim in self.in_hand for home in claim.homes.asked)
        groups = list(chunked(asked, runtime.caller.shards_a_call))
        calls = [
            renew_away([(home.shard, claim.epoch, home.number) for claim, home in group], runtime.node, ttl)
            for group in groups
        ]
        again = [call for lease in {claim.lease for claim in self.in_hand} for call in lease.leave_again_calls()]
        results = runtime.caller.run_all([*again, *calls])[len(again) :]
        cancelled = set[Lease]()
        for group, kept in zip(groups, results, strict=True):
            for (claim, home), reply in zip(group, kept if isinstance(kept, list) else (), strict=False):
                if self._note_renewed(claim, home, reply, now):
                    cancelled.add(claim.lease)
        raise_first(results)
        return cancelled

    def _note_renewed(self, claim: ClaimInHand, home: Home, reply: int | bytes, now: float) -> bool:
        """Returns whether jobs of it may have been cancelled."""
        if home not in claim.homes.all:  # it was moved from there, or, as others have said just now, it was not
            if isinstance(reply, bytes) or reply == LOST:
                return False
            claim.homes.go_back()
        if isinstance(reply, bytes):
            claim.follow(home, reply.decode())
        if reply != LOST:
            claim.renewed(now, self._runtime.settings.lease_ttl)
        elif len(claim.homes.all) > 1:
            claim.homes.lose(home)
        elif self._has_lost(claim):
            logger.warning("lease_lost", queue=claim.shard.queue, shard=claim.shard.index, epoch=claim.epoch)
            self._runtime.incidents.lost(claim.shard)
        return isinstance(reply, int) and bool(reply & CANCELS)

    @staticmethod
    def _has_lost(claim: ClaimInHand) -> bool:
        """Notes that a claim is over for Redis. Returns whether it was taken from us, not ended by a settle."""
        with claim.thread.settling:
            return claim.lost()

    def settle(self) -> None:
        """Settles what has ended while it was on its way to other shards. Raises RedisError: it is tried again."""
        in_transit = self._runtime.in_transit
        for claim in tuple(in_transit):
            settle = claim.settle_call(last=True)
            if settle and (settled := claim.settled(settle, self._runtime.caller.run_all(settle.calls))):
                with claim.thread.settling:
                    claim.thread.count(settled)
            if not (settle and claim.is_in_transit):
                in_transit.remove(claim)
