"""The measurements of Lowkiq alone: queues of many shards, and of one."""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks.contender import Contender, ContenderFailed
from benchmarks.measures import EVERY, GRACE, Figures, Pace, all_done, warm_up
from benchmarks.session import session
from tests.support import wait_until

#: Shards of the queues that bulk pushes go to, and jobs in a call: two a shard where there are most.
PUSHED_TO, CALL = (10, 1_000, 10_000), 20_000
#: Shards of an idle node.
IDLE_SHARDS = 10_000
#: Seconds that the slow job sleeps, the others a second, and for how many of the usual seconds they come.
SLEEP, OTHERS, COMING = 10, 333, 3
#: Tasks at a time, and about how many end a second.
TASKS, TASKS_RATE = 200, 20_000


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


def tasks(contender: Contender, pace: Pace) -> Figures:
    """Jobs a second of an async worker in one shard, each of which waits 5 ms: a whole batch, from its push on."""
    jobs = int(TASKS_RATE * 2 * pace.seconds)
    with session(contender, job="io", BENCH_SHARDS="1", BENCH_TASKS=str(TASKS), BENCH_EVERY=EVERY) as run:
        run.start_workers(1)
        warm_up(run)
        began = time.monotonic()
        run.produce("bulk", jobs=jobs)
        all_done(run, jobs, GRACE)
        return {"tasks": jobs / run.tally.seconds(began)}


MEASURES: tuple[Callable[[Contender, Pace], Figures], ...] = (bulk_pushes, idle_shards, beside_a_slow_id, tasks)
