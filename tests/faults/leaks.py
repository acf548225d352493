"""
Leaks: works a real supervisor hard, lets the queue run dry now and then, and looks what has stayed: memory, threads,
descriptors, keys.

    python -m tests.faults.leaks --minutes 10
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import psutil

from lowkiq import Lowkiq, Worker
from lowkiq.job import EncodedJob, NewJob
from lowkiq.queue.push_calls import push_call
from lowkiq.queue.shard import Shard
from tests.harness import Supervised
from tests.queue.stamps import once
from tests.support import SOURCES, SUPERVISOR, running_redis, wait_until
from tests.warm import COLD

NODES, SHARDS = 2, 4

#: Queues: of threads, of the event loop, and of processes of their own.
QUEUES = "work", "tasks", "isolated"

APP = f"""
import asyncio, os, signal, time
from lowkiq import Lowkiq, Worker, current

app = Lowkiq()

class Work(Worker):
    shards_count, max_retry_count, batch_size = {SHARDS}, 2, 3

    def retry_in(self, retry_count):
        return 0.01

    def act(self, payloads_by_id):
        for payloads in payloads_by_id.values():
            if "fail" in payloads:
                raise ValueError("x" * 500)
            if "keep" in payloads:
                current().checkpoint(1, id="keeping")
            if "slow" in payloads:
                yield 0.1

    def perform(self, payloads_by_id):
        for seconds in self.act(payloads_by_id):
            time.sleep(seconds)

@app.worker(queue_name="work")
class OnThreads(Work):
    pass

@app.worker(queue_name="tasks", perform_timeout=60)
class OnLoop(Work):
    async def perform(self, payloads_by_id):
        for seconds in self.act(payloads_by_id):
            await asyncio.sleep(seconds)

@app.worker(queue_name="isolated", isolation="process", perform_timeout=60)
class Isolated(Work):
    def perform(self, payloads_by_id):
        if any("die" in payloads for payloads in payloads_by_id.values()):
            os.kill(os.getpid(), signal.SIGKILL)
        super().perform(payloads_by_id)
"""

#: Keys that stay when all is done (docs/operators.md says why).
KEPT = re.compile(
    rb"lowkiq:(?:queues|nodes|marker|node:.+|bell:.+:idle|unowned|parts|alerts|\{incidents\}(?::said|:ends)?|version:[0-9a-f]+|settings:.+"
    rb"|\{members\}(?::said|:version|:placements)?"
    rb"|\{history\}(?::.*:(?:5m|1h|1d|30d|365d|times(?::\d+)?|added:.+))?"
    rb"|\{failures\}:(?:work|tasks|isolated):(?:counts|first|seen|flush:.+)"
    rb"|\{(?:work|tasks|isolated):\d+\}:(?:meta|owner|deeds))"
)
#: Queued jobs above which the load waits.
MOST_QUEUED = 5_000

#: What may be more at the end than after the second round: bytes of a process, and of Redis, whose history fills up.
MORE_OF_A_PROCESS, MORE_OF_REDIS = 4 << 20, 512 << 10
#: Threads of a loop's executor begin when one more failure than before is told at once, and stay. One that leaked with
#: each turn of the load would be hundreds.
MORE_THREADS = 10


class Sample(NamedTuple):
    """Figures at a rest: nothing queued, nothing in hand."""

    jobs: int
    #: Process → bytes, threads, descriptors.
    processes: dict[str, tuple[int, int, int]]
    redis_bytes: int
    keys: list[bytes]


class Load:
    def __init__(self, app: Lowkiq) -> None:
        self._app = app
        self._workers = [app.worker(queue_name=queue, shards_count=SHARDS)(_nothing) for queue in QUEUES]
        self._turns = itertools.count()
        self.pushed = 0

    def run(self, seconds: float) -> None:
        """Pushes for so long, as fast as jobs are done."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._push(next(self._turns))
            wait_until(lambda: self._queued() < MOST_QUEUED, every=0.02)

    def rest(self) -> None:
        """Waits until nothing is left, but for the dead, which are deleted."""
        wait_until(self._is_done, within=180, every=0.05)
        for worker in self._workers:
            worker.actions.morgue_delete_all_jobs()

    def _push(self, turn: int) -> None:
        *quick, isolated = self._workers
        for worker in quick:
            self._push_to(worker, turn, 800)
        self._push_to(isolated, turn, 100)
        isolated.perform_async([{"id": f"dying-{turn}", "payload": "die"}])
        spoiled = push_call(
            Shard("lowkiq", "work", 0, SHARDS), [EncodedJob(b"spoiled-%d" % turn, b"{", "", "")], once()
        )
        self._app.caller.run(spoiled)

    def _push_to(self, worker: type[Worker], turn: int, count: int) -> None:
        jobs: list[NewJob] = [{"id": f"{turn}-{n}", "payload": [turn, n]} for n in range(count)]
        jobs += [{"id": f"same-{n}", "payload": [turn, m]} for n in range(50) for m in range(3)]
        jobs += [{"id": f"late-{turn}-{n}", "payload": n, "perform_in": time.time() + 0.5} for n in range(20)]
        jobs += [{"id": f"failing-{turn}-{n}", "payload": "fail"} for n in range(4)]
        jobs += [{"id": "slow", "payload": "slow"}, {"id": "keeping", "payload": "keep"}]
        worker.perform_async(jobs)
        if worker.queue_name != QUEUES[-1]:  # a cancel may end the helper that was to say when a job is tried again
            worker.actions.cancel(["slow", f"{turn}-1"])
        self.pushed += len(jobs)

    def _is_done(self) -> bool:
        return self._queued() == 0

    def _queued(self) -> int:
        return sum(metrics.length + metrics.busy for metrics in self._app.metrics().values())


def _nothing(_: object) -> None:
    """Jobs run in other processes."""


def run(directory: Path, seconds: float, rounds: int) -> tuple[list[Sample], list[str]]:
    """Works for so long in so many rounds; samples of the rests between them, and complaints."""
    (directory / "app.py").write_text(APP)
    arguments = [*SUPERVISOR, "-r", "app", "--nodes", str(NODES)]
    with running_redis() as server, closing(Lowkiq(redis_url=server.url)) as app:
        environment = {"REDIS_URL": server.url, "PYTHONPATH": os.pathsep.join([SOURCES, str(directory)]), **COLD}
        with Supervised(directory, arguments, environment) as supervisor:
            pids = supervisor.until_ready(NODES)
            watched = {"supervisor": supervisor.process.pid} | {f"node {n}": pid for n, pid in enumerate(pids)}
            load, samples = Load(app), []
            for _ in range(rounds):
                load.run(seconds / rounds)
                load.rest()
                samples.append(_sample(app, load, {name: psutil.Process(pid) for name, pid in watched.items()}))
                print(_line(samples[-1]), flush=True)
            supervisor.send(signal.SIGTERM)
            supervisor.process.wait(60)
            return samples, list(_complaints(samples, supervisor.process.returncode))


def _sample(app: Lowkiq, load: Load, processes: dict[str, psutil.Process]) -> Sample:
    client = app.redis()
    client.memory_purge()
    return Sample(
        jobs=load.pushed,
        processes={
            name: (process.memory_info().rss, process.num_threads(), process.num_fds())
            for name, process in processes.items()
        },
        redis_bytes=client.info("memory")["used_memory"],
        keys=sorted(client.scan_iter(count=1_000)),
    )


def _complaints(samples: list[Sample], exit_code: int) -> Iterator[str]:
    before, after = samples[1], samples[-1]
    for name, (rss, threads, files) in after.processes.items():
        rss_before, threads_before, files_before = before.processes[name]
        if rss > rss_before * 1.03 + MORE_OF_A_PROCESS:
            yield f"{name} has grown from {rss_before:,} to {rss:,} bytes"
        if threads > threads_before + MORE_THREADS:
            yield f"{name} has {threads} threads, and had {threads_before}"
        if files > files_before + 2:
            yield f"{name} has {files} descriptors, and had {files_before}"
    if after.redis_bytes > before.redis_bytes + MORE_OF_REDIS:
        yield f"Redis has grown from {before.redis_bytes:,} to {after.redis_bytes:,} bytes"
    if left := [key for key in after.keys if not KEPT.fullmatch(key)]:
        yield f"keys are left: {left}"
    if exit_code:
        yield f"the supervisor has ended with {exit_code}"


def _line(sample: Sample) -> str:
    processes = "  ".join(
        f"{name} {rss / 2**20:.1f} MiB {threads} threads {files} fds"
        for name, (rss, threads, files) in sample.processes.items()
    )
    return (
        f"{sample.jobs:>10,} payloads  {processes}  Redis {sample.redis_bytes / 2**20:.2f} MiB {len(sample.keys)} keys"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    minutes: float = parser.parse_args().minutes
    with tempfile.TemporaryDirectory(prefix="lowkiq-leaks-") as directory:
        _, complaints = run(Path(directory), minutes * 60, rounds=max(4, round(minutes * 2)))
    for complaint in complaints:
        print(complaint)
    print("leaks" if complaints else "no leaks")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
