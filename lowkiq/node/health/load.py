"""Load: what a node tells its supervisor of its work, about every second. It asks Redis nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from lowkiq import clock
from lowkiq.node.job_thread import JobThread, leases_of_threads


class Load(NamedTuple):
    """How much a node does, and how much it leaves undone."""

    #: Threads and tasks that run batches.
    busy: int
    #: Jobs that have ended so far.
    jobs: int
    #: Shards of the node that another one holds.
    waits: int
    #: Thousandths of its threads that are busy; or of the places on its event loop, if more of those are taken.
    full: int
    #: Milliseconds by which the oldest job is late that waits in its shards, as far as it knows: it hears of jobs when
    #: it claims, settles or polls, and no thread does as long as all of them are inside a batch.
    late: int


def load_of(threads: Sequence[JobThread]) -> Load:
    """The load of a node with these threads."""
    leases, now = leases_of_threads(threads), clock.monotonic()
    queued_for = min((lease.queued_for for lease in leases if lease.epoch is not None), default=now)
    return Load(
        busy=sum(thread.busy for thread in threads),
        jobs=sum(thread.processed + thread.failed for thread in threads),
        waits=sum(lease.holder is not None for lease in leases),
        full=max((_full(pool) for pool in _pools(threads)), default=0),
        late=round(max(now - queued_for, 0.0) * 1000),
    )


def _pools(threads: Sequence[JobThread]) -> Iterator[list[JobThread]]:
    """Threads that run the same shards; the feeder runs others than they do, so that either may be full alone."""
    for pool in dict.fromkeys(thread.pool for thread in threads):
        yield [thread for thread in threads if thread.pool is pool]


def _full(pool: Sequence[JobThread]) -> int:
    busy, free = sum(thread.busy for thread in pool), sum(thread.free for thread in pool)
    return 1000 * busy // max(busy + free, 1)
