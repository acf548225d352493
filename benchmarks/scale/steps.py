"""The measurements of scale: microseconds that a job costs one node, at one size of something."""

from __future__ import annotations

import statistics
import time

import redis

from benchmarks.contender import Contender, ContenderFailed, server
from benchmarks.session import Session, session
from tests.support import wait_until

#: Jobs that are timed; more of them lie behind where the queue is longer.
TIMED = 500_000
#: Seconds between two words of a process: a queue of 10⁴ is done within a tenth of a second.
EVERY = "0.002"
#: Of shorter queues several are timed.
FEW = 50_000
#: Bytes of payloads that a measurement moves at most.
MOVED = 200_000_000
#: Seconds to wait for all of it.
PATIENCE = 600.0
#: Seconds for which an idle node is watched.
WATCHED = 10.0


def by_shards(contender: Contender, shards: int, jobs: int = TIMED) -> float:
    """Blank jobs, on so many shards of one node."""
    with session(contender, BENCH_SHARDS=str(shards), BENCH_EVERY=EVERY) as run:
        run.produce("bulk", jobs=jobs)
        return _cost(run, 1, jobs)


def by_length(contender: Contender, queued: int) -> float:
    """Blank jobs, with so many queued; the median of several queues where one is done in no time."""
    costs = []
    for _ in range(max(1, FEW // queued)):
        with session(contender, BENCH_EVERY=EVERY) as run:
            run.produce("bulk", jobs=queued)
            costs.append(_cost(run, 1, min(queued, TIMED)))
    return statistics.median(costs)


def by_payloads_of_an_id(contender: Contender, payloads: int) -> float:
    """Payloads, all of one id."""
    with session(contender, BENCH_EVERY=EVERY) as run:
        run.produce("one id", jobs=payloads)
        return _cost(run, 1, payloads)


def by_size(contender: Contender, size: int) -> float:
    """Blank jobs with payloads of so many bytes."""
    jobs = max(50, min(100_000, MOVED // size))
    with session(contender, BENCH_EVERY=EVERY) as run:
        for _ in range(0, jobs, chunk := max(1, min(jobs, MOVED // 10 // size))):
            run.produce("sized", jobs=chunk, bytes=size - 40)
        return _cost(run, 1, jobs)


def by_nodes(contender: Contender, nodes: int, jobs: int = TIMED) -> float:
    """Blank jobs, by so many nodes at once."""
    with session(contender, processes=nodes, BENCH_EVERY=EVERY) as run:
        run.produce("bulk", jobs=jobs)
        return _cost(run, nodes, jobs)


def idle_commands(contender: Contender, shards: int) -> tuple[float, float]:
    """Commands a second that an idle node of so many shards sends, and that Redis runs, scripts' own included."""
    with server() as url:
        quiet = Contender(
            name=contender.name,
            command=contender.command,
            check=contender.check,
            environment=contender.environment,
            backend=lambda: _Given(url),
        )
        with session(quiet, BENCH_SHARDS=str(shards)) as run, redis.Redis.from_url(url) as client:
            run.produce("bulk", jobs=1)
            run.start_workers(1)
            wait_until(lambda: run.tally.done, within=PATIENCE)
            run.wait_for_calm()
            return _watch(client, WATCHED)


class _Given:
    """A server that is there already, as a backend."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __enter__(self) -> str:
        return self._url

    def __exit__(self, *_: object) -> None:
        """It ends elsewhere."""


def _cost(run: Session, nodes: int, jobs: int) -> float:
    run.start_workers(nodes)
    if not run.wait_for(jobs, PATIENCE):
        raise ContenderFailed(f"{run.tally.done:,} of {jobs:,} jobs were done within {PATIENCE:.0f} s")
    return 1e6 / run.tally.rate()


def _watch(client: redis.Redis, seconds: float) -> tuple[float, float]:
    """MONITOR tells what clients send from what scripts call."""
    sent = executed = 0
    until = time.monotonic() + seconds
    # Someone has to say something at the end, or the watch would wait for the next command.
    with client.monitor() as monitor:  # type: ignore[no-untyped-call]
        for seen in monitor.listen():
            executed += 1
            sent += seen["client_type"] != "lua"
            if time.monotonic() > until:
                return sent / seconds, executed / seconds
    raise AssertionError("MONITOR ended")
