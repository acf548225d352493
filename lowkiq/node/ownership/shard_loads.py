"""ShardLoads: how many threads each shard keeps busy, as a node's heartbeat tells."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from typing import Final

from lowkiq import clock
from lowkiq.node.job_thread import JobThread
from lowkiq.node.leases.lease import Lease
from lowkiq.node.leases.thread_claim import ThreadClaim

#: Seconds over which a load is averaged: longer than a lull between two jobs, shorter than people's patience.
OVER: Final = 15.0
#: Shards of which a node tells, those with the highest load; lower loads than this are none.
MOST_TOLD, LEAST = 1_000, 0.001


class ShardLoads:
    """Called with each beat. Async jobs are left out: they keep no thread busy, and have their shards by number."""

    def __init__(self, threads: Sequence[JobThread], leases: Iterable[Lease]) -> None:
        self._threads = threads
        self.follow(leases)
        self._seconds: dict[Lease, float] = {}
        self._loads: dict[Lease, float] = {}
        self._told_at = clock.monotonic()

    def follow(self, leases: Iterable[Lease]) -> None:
        """Tells of these from here on."""
        self._leases = tuple(leases)

    def __call__(self) -> dict[str, dict[int, float]]:
        """Queue, of a generation → shard → threads that it keeps busy, of the shards that this node has."""
        now = clock.monotonic()
        share = 1 - math.exp(-(now - self._told_at) / OVER)
        running: dict[Lease, float] = {}
        for thread in self._threads:
            for claim in thread.in_hand:
                if isinstance(claim, ThreadClaim) and claim.performing_since < now:
                    running[claim.lease] = running.get(claim.lease, 0.0) + now - claim.performing_since
        for lease in self._leases:
            total = lease.busy_seconds + running.get(lease, 0.0)
            spent, self._seconds[lease] = max(total - self._seconds.get(lease, 0.0), 0.0), total
            load = self._loads.get(lease, 0.0)
            if now > self._told_at and (load or spent):
                self._loads[lease] = load + (spent / (now - self._told_at) - load) * share
        self._told_at = now
        owned = ((load, lease) for lease, load in self._loads.items() if lease.epoch is not None and load >= LEAST)
        told: dict[str, dict[int, float]] = {}
        for load, lease in heapq.nlargest(MOST_TOLD, owned, key=lambda row: row[0]):
            told.setdefault(lease.shard.part, {})[lease.shard.index] = round(load, 3)
        return told
