"""The measurements of a contender: each takes a few seconds, in a session of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from benchmarks.contender import Contender, ContenderFailed
from benchmarks.session import Session, session
from benchmarks.tally import Latency

#: Seconds of waiting for a job, beyond what its rate says, before a measurement ends with what there is.
#: Processes that start beside others on a busy machine have taken seven until their first job.
GRACE = 60.0
#: Single jobs that tell their latency on idle workers.
IDLE_JOBS = 150
#: Jobs whose memory is taken.
SMALL_JOBS = 20_000
#: Jobs a second that a new contender is thought to do, until it has shown more.
FIRST_GUESS, MAX_JOBS = 400.0, 1_000_000
MIN_JOBS = 100
#: Seconds between two words of a process where their last one ends what is timed.
EVERY = "0.005"
#: Jobs of which each process must have had one before a batch is timed, and for how many seconds they are tried.
WARMING, WARMED = 20, 10.0
#: A mixed load: jobs a second, for how many of the usual seconds, and how many in a thousand are slow.
MIXED_RATE, MIXED, SLOW = 300, 6, 10
#: Lone jobs a second, and for how many of the usual seconds.
LONE_RATE, LONE = 500, 2
#: Jobs of a first look; the second takes place where the first was over too soon to tell.
PROBES, PROBE_LIMIT = (1_000, 40_000), 4.0

#: Name → what was found; None where it can't be.
Figures = dict[str, float | None]


@dataclass
class Pace:
    """Estimates how many jobs a contender does in the seconds that a measurement should take."""

    seconds: float
    rates: dict[str, float] = field(default_factory=dict)

    def jobs(self, what: str, most: float = MAX_JOBS, seconds: float | None = None) -> int:
        """Number of jobs to measure with; `seconds` in place of the usual ones."""
        guess = self.rates.get(what) or self.rates.get("1×5") or FIRST_GUESS
        return int(max(MIN_JOBS, min(most, guess * (seconds or self.seconds))))

    def learn(self, what: str, rate: float) -> float:
        """Remembers a rate."""
        self.rates[what] = rate
        return rate


def probe(contender: Contender, pace: Pace) -> float:
    """Finds out how fast it is, roughly, with ever more jobs; and whether it runs at all."""
    for jobs in PROBES:
        with session(contender) as run:
            run.produce("bulk", jobs=jobs)
            run.start_workers(1)
            run.wait_for(1, GRACE)
            run.wait_for(jobs, PROBE_LIMIT)  # a slow one shows its rate with less
            rate = run.tally.rate()
            if run.tally.seconds() > 0.2:
                break
    return pace.learn("1×5", rate)


def blank(contender: Contender, pace: Pace) -> Figures:
    """Throughput of one process of five threads; then how long a job waits when it is idle, and at half load."""
    jobs = pace.jobs("1×5")
    with session(contender) as run:
        before = run.use()
        bulk = run.produce("bulk", jobs=jobs)
        rate = pace.learn("1×5", _work(run, 1, jobs, pace.seconds + GRACE))
        after, rss = run.use(), run.rss()
        bulk_rate = bulk["jobs"] / bulk["seconds"]
        # A full load is what one producer can push and one process do: of one that does twice what can be pushed, half
        # of its rate alone would be all that the producer can do.
        idle, half_load, half_rate = _latencies(run, min(rate, bulk_rate), pace)
    return {
        "1×5": rate,
        "bulk": bulk_rate,
        "rss": rss / 1e6,
        "redis": (after.cpu_seconds - before.cpu_seconds) / jobs * 1e6 if before and after else None,
        "commands": (after.commands - before.commands) / jobs if before and after else None,
        "idle p50": idle.p50,
        "idle p99": idle.p99,
        "half rate": half_rate,
        "half p50": half_load.p50,
        "half p99": half_load.p99,
    }


def throughput(contender: Contender, pace: Pace, processes: int, batch: int = 1) -> float:
    """Jobs a second that so many processes do, queued beforehand."""
    what = f"{processes}×5, {batch}"
    jobs = pace.jobs(what)
    with session(contender, processes=processes, batch=batch) as run:
        run.produce("bulk", jobs=jobs)
        return pace.learn(what, _work(run, processes, jobs, pace.seconds + GRACE))


def whole_batch(contender: Contender, pace: Pace, processes: int, job: str, most: float) -> float:
    """The part of `most` jobs a second that idle workers do of a whole batch: from the first push to the last end."""
    what = f"{job} {processes}×5"
    seconds = 2 * pace.seconds
    jobs = pace.jobs(what, most * seconds, seconds)
    with session(contender, job=job, processes=processes, BENCH_EVERY=EVERY) as run:
        run.start_workers(processes)
        warm_up(run, processes)
        began = time.monotonic()
        run.produce("bulk", jobs=jobs)
        all_done(run, jobs, seconds + GRACE)
        return pace.learn(what, jobs / run.tally.seconds(began)) / most


def mixed_load(contender: Contender, pace: Pace) -> Figures:
    """How long jobs wait of which a few are slow and threads mostly idle: all of the run."""
    with session(contender, job="io") as run:
        run.start_workers(1)
        warm_up(run)
        sent = run.produce("mixed", rate=MIXED_RATE, seconds=MIXED * pace.seconds, slow=SLOW)
        all_done(run, sent["jobs"], GRACE)
        waits = run.tally.latency(skip=0)
    return {"mixed p50": waits.p50, "mixed p99": waits.p99, "mixed most": waits.most}


def lone_jobs(contender: Contender, pace: Pace) -> Figures:
    """Redis's part of a job that comes alone: microseconds, and commands; without what idle workers cost it."""
    if not contender.on_redis:
        return {}
    with session(contender) as run:
        run.start_workers(1)
        warm_up(run)
        idle, before = run.rates(max(pace.seconds, 1.0)), run.use()
        sent = run.produce("paced", rate=LONE_RATE, seconds=LONE * pace.seconds)
        all_done(run, sent["jobs"], GRACE)
        after = run.use()
    assert before and after
    cpu = after.cpu_seconds - before.cpu_seconds - idle.redis * sent["seconds"]
    commands = after.commands - before.commands - idle.commands * sent["seconds"]
    return {"lone redis": cpu / sent["jobs"] * 1e6, "lone commands": commands / sent["jobs"]}


def single_rate(contender: Contender, seconds: float) -> float:
    """Jobs a second that one producer enqueues one by one."""
    with session(contender) as run:
        run.produce("single", seconds=0.2)
        sent = run.produce("single", seconds=seconds)
    return sent["jobs"] / sent["seconds"]


def queued_bytes(contender: Contender, jobs: int) -> float | None:
    """Memory of Redis for a queued job with an id and a payload of ten bytes each."""
    with session(contender) as run:
        run.produce("small", jobs=100)
        before = run.use()
        run.produce("small", jobs=jobs)
        after = run.use()
    return (after.memory - before.memory) / jobs if before and after else None


def hot_ids(contender: Contender, pace: Pace) -> tuple[float, float]:
    """Payloads a second, and payloads of one perform, where 1 % of the ids get 90 % of the pushes."""
    jobs = pace.jobs("hot")
    with session(contender) as run:
        run.produce("hot", jobs=jobs)
        rate = pace.learn("hot", _work(run, 1, jobs, pace.seconds + GRACE))
        return rate, run.tally.done / max(1, run.tally.performs)


def enqueueing(contender: Contender, pace: Pace) -> Figures:
    """One by one, and what a queued job takes up."""
    jobs = pace.jobs("1×5", SMALL_JOBS)
    return {"single": single_rate(contender, pace.seconds / 2), "bytes": queued_bytes(contender, jobs)}


def batches(contender: Contender, pace: Pace) -> Figures:
    """Many ids a call, and many payloads of an id, where the contender can do that."""
    if not contender.batches:
        return {}
    rate, merged = hot_ids(contender, pace)
    return {"batch 100": throughput(contender, pace, 1, batch=100), "hot": rate, "merged": merged}


#: In the order in which they are made within a round.
MEASURES: Mapping[str, Callable[[Contender, Pace], Figures]] = {
    "blank jobs, latency": blank,
    "two processes": lambda contender, pace: {"2×5": throughput(contender, pace, 2)},
    "four processes": lambda contender, pace: {"4×5": throughput(contender, pace, 4)},
    "waiting jobs": lambda contender, pace: {"io": whole_batch(contender, pace, 1, "io", 1_000)},
    "burning jobs": lambda contender, pace: {"cpu": whole_batch(contender, pace, 2, "cpu", 2_000)},
    "mixed load": mixed_load,
    "lone jobs": lone_jobs,
    "enqueueing": enqueueing,
    "batches and hot ids": batches,
}


def warm_up(run: Session, processes: int = 1) -> None:
    """Waits until all processes have done a job; then nothing has been done."""
    until = time.monotonic() + WARMED
    sent = 0.0
    while run.tally.processes < processes and (not sent or time.monotonic() < until):
        sent += run.produce("bulk", jobs=WARMING * processes)["jobs"]
        all_done(run, sent, GRACE)
    run.tally.reset()


def _work(run: Session, processes: int, jobs: int, limit: float) -> float:
    """
    The rate at which all the jobs were done.

    Raises:
        ContenderFailed: not all of them were done in time; a rate of the others would flatter.
    """
    run.start_workers(processes)
    all_done(run, jobs, limit)
    return run.tally.rate()


def all_done(run: Session, jobs: float, limit: float) -> None:
    if not run.wait_for(jobs, limit):
        raise ContenderFailed(f"{run.tally.done:,} of {jobs:,.0f} jobs were done within {limit:.0f} s")


def _latencies(run: Session, rate: float, pace: Pace) -> tuple[Latency, Latency, float]:
    run.tally.reset()
    run.produce("idle", jobs=min(IDLE_JOBS, int(50 * pace.seconds)))
    all_done(run, min(IDLE_JOBS, int(50 * pace.seconds)), GRACE)
    idle = run.tally.latency()
    run.tally.reset()
    sent = run.produce("paced", rate=rate / 2, seconds=pace.seconds)
    all_done(run, sent["jobs"], GRACE)
    return idle, run.tally.latency(skip=0.2), sent["jobs"] / sent["seconds"]
