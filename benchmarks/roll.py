"""
Prints for how long, at most, quick jobs wait while the node of their shard is replaced, and another shard of it is at a
long job: `restart 0` of a supervisor, under a job each 20 ms on every shard but that one.
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
from pathlib import Path

from lowkiq import Lowkiq, Worker
from lowkiq.admin.metrics import read_shards
from lowkiq.job import shard_of
from lowkiq_supervisor.control.client import ask
from tests.support import SOURCES, SUPERVISOR, running_redis, wait_until

SHARDS = 8
#: Seconds between jobs of a shard, and for which jobs go on after the node has been replaced.
TICK, AFTER = 0.02, 2.0
#: An id of each shard. The first one's is at the long job.
IDS = [next(str(n) for n in range(1000) if shard_of(str(n).encode(), SHARDS) == shard) for shard in range(SHARDS)]

APP = f"""
import json, time
from lowkiq import Lowkiq

app = Lowkiq()

@app.worker(queue_name="jobs", shards_count={SHARDS})
def jobs(payloads_by_id):
    now = time.time()
    for id, payloads in payloads_by_id.items():
        for payload in payloads:
            app.redis().rpush("done", json.dumps([id, now - payload["at"]]))
            time.sleep(payload.get("sleep", 0))
"""


def main(arguments: list[str] | None = None) -> int:
    """One roll for each number of nodes."""
    parser = argparse.ArgumentParser("python -m benchmarks.roll", description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--job", type=float, default=15.0, help="seconds that the long job takes")
    given = parser.parse_args(arguments)
    for nodes in given.nodes:
        print(f"{nodes} nodes: longest wait {longest_wait(nodes, given.job):.3f} s", flush=True)
    return 0


def longest_wait(nodes: int, job: float) -> float:
    """Seconds, of all quick jobs from the restart on until a while after its end."""
    with running_redis() as server, tempfile.TemporaryDirectory(prefix="lowkiq-roll-") as place:
        (Path(place) / "shop.py").write_text(APP, "utf-8")
        environment = os.environ | {"REDIS_URL": server.url, "PYTHONPATH": SOURCES}
        # A thread for each shard: none waits for the long job because it shares its thread.
        options = ["--nodes", str(nodes), "--threads", str(SHARDS), "--drain-timeout", str(job + 10)]
        command = [sys.executable, *SUPERVISOR, "-r", "shop", *options]
        with (Path(place) / "log").open("wb") as log:
            supervisor = subprocess.Popen(command, cwd=place, env=environment, stderr=log)
        try:
            return _roll(Lowkiq(redis_url=server.url), Path(place) / ".lowkiq", nodes, job)
        finally:
            supervisor.send_signal(signal.SIGQUIT)
            supervisor.wait(30)


def _roll(app: Lowkiq, state: Path, nodes: int, job: float) -> float:
    worker = app.worker(queue_name="jobs", shards_count=SHARDS)(lambda _: None)

    def all_ready() -> bool:
        return (state / "control.sock").exists() and [row["state"] for row in _slots(state)] == ["ready"] * nodes

    wait_until(all_ready)
    wait_until(lambda: all(row.owner for row in read_shards(app.caller, app.shards("jobs", SHARDS))))
    worker.perform_async([{"id": IDS[0], "payload": {"at": time.time(), "sleep": job}}])
    wait_until(lambda: app.redis().llen("done"))
    before = _slots(state)[0]["pid"]
    ask(state, "restart", slot=0)
    until = time.monotonic() + job + AFTER
    while time.monotonic() < until:
        _push(worker)
        if time.monotonic() > until - AFTER and any(row["pid"] == before for row in _slots(state)):
            until += TICK
        time.sleep(TICK)
    wait_until(lambda: app.metrics()["jobs"].length == 0)
    return max(float(waited) for _, waited in map(json.loads, app.redis().lrange("done", 1, -1)))


def _push(worker: type[Worker]) -> None:
    at = time.time()
    worker.perform_async([{"id": id, "payload": {"at": at}, "score": at} for id in IDS[1:]])


def _slots(state: Path) -> list[dict[str, object]]:
    slots: list[dict[str, object]] = ask(state, "status")["nodes"]
    return slots


if __name__ == "__main__":
    sys.exit(main())
