"""The measurements of Lowkiq alone: queues of many shards, and of one."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.contender import Contender, ContenderFailed
from benchmarks.measures import GRACE, Figures, Pace, warm_up
from benchmarks.session import session
from tests.support import wait_until

#: Shards of the queues that bulk pushes go to, and jobs in a call: two a shard where there are most.
PUSHED_TO, CALL = (10, 1_000, 10_000), 20_000
#: Shards of an idle node.
IDLE_SHARDS = 10_000
#: Seconds that the slow job sleeps, the others a second, and for how many of the usual seconds they come.
SLEEP, OTHERS, COMING = 10, 333, 3


def bulk_pushes(contender: Contender, pace: Pace) -> Figures:
    """Pushes a second to queues of ever more shards, which have been pushed to before."""
    figures: Figures = {}
    for shards in PUSHED_TO:
        with session(contender, BENCH_SHARDS=str(shards)) as run:
            run.produce("bulk", jobs=CALL, chunk=CALL)
            sent = run.produce("bulk", jobs=CALL * max(1, round(3 * pace.seconds)), chunk=CALL)
        figures[f"bulk to {shards}"] = sent["jobs"] / sent["seconds"]
    return figures


def idle_shards(contender: Contender, pace: Pace) -> Figures:
    """An idle node with many shards: parts of a core, and commands."""
    with session(contender, BENCH_SHARDS=str(IDLE_SHARDS)) as run:
        run.start_workers(1)
        warm_up(run)
        run.wait_for_calm()
        rates = run.rates(5 * pace.seconds)
    return {"idle redis": rates.redis, "idle commands": rates.commands, "idle node": rates.workers}


def beside_a_slow_id(contender: Contender, pace: Pace) -> Figures:
    """How long other ids wait in a queue of one shard while one of its ids sleeps."""
    with session(contender, job="io", BENCH_SHARDS="1") as run:
        run.start_workers(1)
        warm_up(run)
        run.produce("sleep", seconds=SLEEP)
        wait_until(lambda: run.tally.started, within=GRACE)
        run.tally.reset()
        sent = run.produce("mixed", rate=OTHERS, seconds=COMING * pace.seconds)
        if not run.wait_for(sent["jobs"], SLEEP + GRACE):
            raise ContenderFailed(f"{run.tally.done:,} of {sent['jobs']:,.0f} jobs were done beside the slow one")
        waits = run.tally.latency(skip=0)
    return {"beside p50": waits.p50, "beside p99": waits.p99}


MEASURES: tuple[Callable[[Contender, Pace], Figures], ...] = (bulk_pushes, idle_shards, beside_a_slow_id)
