"""A shard with several claims in hand, and an id that has more queued behind its own run."""

from __future__ import annotations

from tests.queue.shard_driver import PAST, Lease, ShardDriver

#: When the payload behind the run of "hot" was due.
HOT_DUE = PAST + 5


def run_beside(shard: ShardDriver, node: str = "a") -> Lease:
    """
    "hot" runs in claim 1 and "slow" in claim 2. A second payload of "hot" waits for the end of its own run: claim 2 has
    met it.
    """
    shard.push("hot", b'"first"', 1.0, PAST)
    lease = shard.lease(node)
    assert [job.id for job in lease.claim()] == ["hot"]
    shard.push_all(("hot", b'"second"', 2.0, HOT_DUE), ("slow", b'"third"', 3.0, PAST + 6))
    assert [job.id for job in lease.claim_beside()] == ["slow"]
    return lease
