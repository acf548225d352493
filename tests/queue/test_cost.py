"""What the common way costs Redis: a command more for each job is felt."""

from __future__ import annotations

import pytest

from lowkiq.queue.shard import Outcome
from tests.queue.shard_driver import ShardDriver


@pytest.mark.parametrize(("jobs", "most"), [(1, 34), (100, 41), (1000, 68)])
def test_a_push_a_claim_and_a_settle_of_done_jobs_take_so_many_commands(own_app, jobs, most):
    """All of them inside the scripts. Fewer are welcome: then the figure goes down with them."""
    shard = ShardDriver(own_app)
    lease = shard.lease()

    def work() -> None:
        shard.push_all(*((f"id-{n}", b"p") for n in range(jobs)))
        assert len(lease.claim()) == jobs
        shard.caller.run(shard.shard.settle("a", lease.epoch, lease.number, Outcome(rest="ack", has_several=False)))

    work()
    shard.redis.config_resetstat()
    for _ in range(10):
        work()
    calls = {name.removeprefix("cmdstat_"): row["calls"] for name, row in shard.redis.info("commandstats").items()}
    ours = {"evalsha", "config|resetstat", "config", "info"}  # Redis 6.2 tells no subcommands
    assert sum(count for name, count in calls.items() if name not in ours) == most * 10
