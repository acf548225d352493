"""
Prints for how long, at most, quick jobs wait while machines come and go that nobody has numbered: one supervisor, then
four, then two, under a job each 20 ms on every shard. `--job 5`: on one shard jobs take so long.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.roll import APP, IDS, SHARDS, TICK
from lowkiq import Lowkiq, Worker
from lowkiq.admin.metrics import read_shards
from tests.support import SOURCES, SUPERVISOR, running_redis, wait_until

#: Seconds under load before the first change, and after each.
CALM = 2.0


class Machines:
    """Supervisors of one node each, and what their jobs have waited."""

    def __init__(self, url: str, place: Path, job: float) -> None:
        (place / "shop.py").write_text(APP, "utf-8")
        self._place, self._job = place, job
        self._environment = os.environ | {"REDIS_URL": url, "PYTHONPATH": SOURCES}
        self._app = Lowkiq(redis_url=url)
        self._worker: type[Worker] = self._app.worker(queue_name="jobs", shards_count=SHARDS)(lambda _: None)
        self.running: list[subprocess.Popen[bytes]] = []
        self.pushed = 0

    def start(self, count: int) -> None:
        for _ in range(count):
            state = self._place / f"machine-{time.monotonic_ns()}"
            command = [sys.executable, *SUPERVISOR, "-r", "shop", "--nodes", "1", "--threads", str(SHARDS),
                       "--state-dir", str(state)]  # fmt: skip
            with (self._place / "log").open("ab") as log:
                self.running.append(subprocess.Popen(command, cwd=self._place, env=self._environment, stderr=log))

    def stop(self, count: int) -> None:
        for _ in range(count):
            self.running.pop(0).send_signal(signal.SIGTERM)

    def owners(self) -> list[str | None]:
        rows = read_shards(self._app.caller, self._app.shards("jobs", SHARDS))
        return [row.owner if row.lease_rest else None for row in rows]

    def is_even(self) -> bool:
        owners = self.owners()
        sizes = sorted(owners.count(owner) for owner in {*owners})
        return None not in owners and len(sizes) == len(self.running) and sizes[-1] - sizes[0] <= 1

    def push_until(self, is_over: Callable[[], bool]) -> None:
        """A job each tick on every shard, until then and a while longer."""
        until, busy = float("inf"), 0.0
        while time.monotonic() < until:
            if until == float("inf") and is_over():
                until = time.monotonic() + CALM
            at = time.time()
            some = IDS[1:] if self._job else IDS
            jobs = [{"id": id, "payload": {"at": at}, "score": at} for id in some]
            if self._job and at - busy > self._job:
                jobs.append({"id": IDS[0], "payload": {"at": at, "sleep": self._job}, "score": at})
                busy = at
            self._worker.perform_async(jobs)
            self.pushed += len(jobs)
            time.sleep(TICK)

    def waits(self, since: int) -> list[float]:
        wait_until(lambda: self._app.metrics()["jobs"].length + self._app.metrics()["jobs"].busy == 0, within=60)
        rows = [json.loads(row) for row in self._app.redis().lrange("done", since, -1)]
        return [waited for id, waited in rows if not (self._job and id == IDS[0])]

    def done(self) -> int:
        return self._app.redis().llen("done")


def main(arguments: list[str] | None = None) -> int:
    """Exits 1 if a job was lost or performed twice."""
    parser = argparse.ArgumentParser("python -m benchmarks.machines", description=__doc__)
    parser.add_argument("--job", type=float, default=0.0, help="seconds that jobs of one shard take")
    given = parser.parse_args(arguments)
    with (
        running_redis() as server,
        tempfile.TemporaryDirectory(prefix="lowkiq-machines-") as place,
        ExitStack() as ends,
    ):
        machines = Machines(server.url, Path(place), given.job)
        ends.callback(lambda: _end(machines.running))
        for change in (+1, +3, -2):
            before, began = machines.owners(), machines.done()
            machines.start(change) if change > 0 else machines.stop(-change)
            started = time.monotonic()
            if change == 1:
                wait_until(machines.is_even)
            machines.push_until(machines.is_even)
            seconds = time.monotonic() - started - CALM
            moved = sum(was != now for was, now in zip(before, machines.owners(), strict=True))
            print(
                f"{len(machines.running)} machines: even after {seconds:.1f} s, {moved} of {SHARDS} shards moved, "
                f"longest wait {max(machines.waits(began)):.3f} s",
                flush=True,
            )
        print(f"{machines.pushed:,} jobs, {machines.pushed - machines.done():,} not done, or twice")
        return int(machines.pushed != machines.done())


def _end(running: Sequence[subprocess.Popen[bytes]]) -> None:
    for supervisor in running:
        supervisor.send_signal(signal.SIGQUIT)
    for supervisor in running:
        supervisor.wait(30)


if __name__ == "__main__":
    sys.exit(main())
