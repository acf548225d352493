"""
Prints how long a queue of many queued jobs takes to be resharded, both ways, while jobs are pushed and run; how long a
job waited at most meanwhile; and whether all are there afterwards.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil

from lowkiq import Lowkiq, Worker
from lowkiq.admin.resharding import Resharding, read_progress
from lowkiq.environment import ExitCode
from tests.support import SOURCES, SUPERVISOR, running_redis, wait_until

#: Jobs of one push that fills the queue, and ids that run meanwhile.
AT_ONCE, IDS = 10_000, 5_000
#: When the others are due: never here.
LATER = 4e9

APP = """
import time
from lowkiq import Lowkiq

app = Lowkiq()

@app.worker(queue_name="jobs", shards_count=5, batch_size=100)
def jobs(payloads_by_id):
    now = time.time()
    waits = [now - at for payloads in payloads_by_id.values() for at, _ in payloads]
    app.redis().execute_command("ZADD", "waits", "GT", max(waits), "longest")
    app.redis().incrby("done", len(waits))
"""


def main(arguments: list[str] | None = None) -> int:
    """Reshards it there and back."""
    parser = argparse.ArgumentParser("python -m benchmarks.reshard", description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000, help="that are queued, and due later")
    parser.add_argument("--shards", type=int, nargs="+", default=[48, 5], help="numbers of shards, one after the other")
    parser.add_argument("--rate", type=int, default=5_000, help="pushes a second meanwhile")
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--kill", type=float, metavar="SECONDS", help="kill -9 a node so often meanwhile")
    given = parser.parse_args(arguments)
    with running_redis() as server, tempfile.TemporaryDirectory(prefix="lowkiq-reshard-") as place:
        (Path(place) / "shop.py").write_text(APP, "utf-8")
        app = Lowkiq(redis_url=server.url)
        worker = app.worker(queue_name="jobs", shards_count=5)(lambda _: None)
        for first in range(0, given.jobs, AT_ONCE):
            some = range(first, min(first + AT_ONCE, given.jobs))
            worker.perform_async([{"id": f"later {number}", "payload": number, "perform_in": LATER} for number in some])
        environment = os.environ | {"REDIS_URL": server.url, "PYTHONPATH": SOURCES}
        command = [sys.executable, *SUPERVISOR, "-r", "shop", "--nodes", str(given.nodes)]
        with (Path(place) / "log").open("wb") as log:
            supervisor = subprocess.Popen(command, cwd=place, env=environment, stderr=log)
        try:
            if given.kill:
                threading.Thread(target=_kill, args=(supervisor.pid, given.kill), daemon=True).start()
            return _reshard(app, worker, given.jobs, given.shards, given.rate)
        finally:
            supervisor.send_signal(signal.SIGTERM)
            supervisor.wait(60)


class Pusher(threading.Thread):
    """Pushes so many jobs a second, as well as it can."""

    def __init__(self, worker: type[Worker], rate: int) -> None:
        super().__init__(daemon=True)
        self._worker, self._rate = worker, rate
        self._stopping = threading.Event()
        self.pushed = 0
        self.began = time.monotonic()

    def run(self) -> None:
        while not self._stopping.wait(0.01):
            due = int((time.monotonic() - self.began) * self._rate) - self.pushed
            now = time.time()
            numbers = range(self.pushed, self.pushed + due)
            jobs = [{"id": f"now {number % IDS}", "payload": [now, number]} for number in numbers]
            self._worker.perform_async(jobs)
            self.pushed += due

    def stop(self) -> float:
        """The pushes a second that there were."""
        self._stopping.set()
        self.join()
        return self.pushed / (time.monotonic() - self.began)


def _reshard(app: Lowkiq, worker: type[Worker], jobs: int, numbers: list[int], rate: int) -> int:
    redis = app.redis()
    pusher = Pusher(worker, rate)
    pusher.start()
    wait_until(lambda: int(redis.get("done") or 0) > rate, within=60)
    for number in numbers:
        redis.delete("waits")
        worker.actions.reshard(number)
        told = wait_until(lambda: _over(app), within=600)
        wait_until(lambda: app.metrics()["jobs"].lag < 1, within=60)
        longest = redis.zscore("waits", "longest") or 0.0
        print(f"{told.before} → {number}: {told.moved:,} jobs in {told.seconds:.1f} s, ", end="")
        print(f"the longest wait {longest:.1f} s", flush=True)
    made = pusher.stop()
    wait_until(lambda: int(redis.get("done") or 0) >= pusher.pushed, within=300)
    row = app.metrics()["jobs"]
    done = int(redis.get("done") or 0)
    # What ran on a node that was killed runs again.
    is_whole = (row.length, row.pushed) == (jobs, jobs + pusher.pushed) and done >= pusher.pushed
    says = "all are there" if is_whole else f"jobs are missing, or were run twice: {row}"
    print(f"{made:,.0f} pushes a second; {says}")
    return ExitCode.DRAINED if is_whole else ExitCode.FAILED


def _kill(supervisor: int, every: float) -> None:
    """Kills nodes, one after the other: one of them moves."""
    rng = random.Random(1)
    while True:
        time.sleep(every)
        children = psutil.Process(supervisor).children()
        if children:
            with contextlib.suppress(psutil.NoSuchProcess):
                rng.choice(children).kill()


def _over(app: Lowkiq) -> Resharding | None:
    found = read_progress(app.caller, app.settings.namespace, "jobs")
    return found if found and found.is_over else None


if __name__ == "__main__":
    sys.exit(main())
