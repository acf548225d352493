"""
Prints how long a tenant's jobs wait behind another's backlog, a job each 50 ms: with fair_by and without, in queues of
one shard and of five; and what pushes and claims cost Redis that give fair shares, by those that do not.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from lowkiq import Lowkiq, Worker
from lowkiq.queue.shard import Outcome
from tests.queue.shard_driver import ShardDriver
from tests.support import SOURCES, running_redis, wait_until

#: Seconds between two jobs of the small tenant.
TICK = 0.05

APP = """
import json, time
from lowkiq import Lowkiq

app = Lowkiq()

@app.worker(queue_name="jobs", shards_count={shards})
def jobs(payloads_by_id):
    now = time.time()
    for payloads in payloads_by_id.values():
        for payload in payloads:
            if "at" in payload:
                app.redis().rpush("waited", now - payload["at"])
            else:
                time.sleep({seconds})
"""


def main(arguments: list[str] | None = None) -> int:
    """A table of waits, and one of costs."""
    parser = argparse.ArgumentParser("python -m benchmarks.fair", description=__doc__)
    parser.add_argument("--backlog", type=int, default=100_000)
    parser.add_argument("--shards", type=int, nargs="*", default=[1, 5])
    parser.add_argument("--job", type=float, default=0.001, help="seconds that a job of the backlog takes")
    parser.add_argument("--seconds", type=float, default=10.0, help="for which jobs of the small tenant come")
    given = parser.parse_args(arguments)
    for shards in given.shards:
        for is_fair in (True, False):
            waits = sorted(waited(shards, given.backlog, given.job, given.seconds, is_fair=is_fair))
            told = ", ".join(f"{name} {waits[round(part * (len(waits) - 1))] * 1000:,.0f} ms" for name, part in PARTS)
            print(f"{shards} shards, {'with' if is_fair else 'without'} fair_by: {told}, of {len(waits)}", flush=True)
    plain, fair = cost(given.backlog, is_fair=False), cost(given.backlog, is_fair=True)
    for name in plain:
        print(f"{name}: {plain[name]:,.1f} plain, {fair[name]:,.1f} fair ({fair[name] / plain[name]:.2f} ×)")
    return 0


PARTS = (("p50", 0.5), ("p99", 0.99), ("at most", 1.0))


def waited(shards: int, backlog: int, job: float, seconds: float, *, is_fair: bool) -> list[float]:
    """Seconds from push to start of the small tenant's jobs; of those that have not started by the end, until then."""
    with running_redis() as server, tempfile.TemporaryDirectory(prefix="lowkiq-fair-") as place:
        (Path(place) / "shop.py").write_text(APP.format(shards=shards, seconds=job), "utf-8")
        worker = _worker(Lowkiq(redis_url=server.url), shards, is_fair=is_fair)
        _push(worker, "big", backlog)
        environment = os.environ | {"REDIS_URL": server.url, "PYTHONPATH": SOURCES}
        command = [sys.executable, "-c", "from lowkiq.cli import main; main()", "-r", "shop"]
        with (Path(place) / "log").open("wb") as log:
            node = subprocess.Popen(command, cwd=place, env=environment, stderr=log)
        try:
            return _waits(worker, server.client(), backlog, seconds)
        finally:
            node.send_signal(signal.SIGQUIT)
            node.wait(30)


def _waits(worker: type[Worker[Any]], redis: Any, backlog: int, seconds: float) -> list[float]:
    app: Any = worker.app
    wait_until(lambda: app.metrics()["jobs"].length < backlog * 0.99, within=60)
    sent: list[float] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        at = time.time()
        worker.perform_async([{"id": f"small-{len(sent)}", "payload": {"tenant": "small", "at": at}}])
        sent.append(at)
        time.sleep(TICK)
    if app.metrics()["jobs"].length < backlog / 100:
        print("(the backlog was done before: raise --backlog, or --job)")
    time.sleep(0.5)
    found = [float(text) for text in redis.lrange("waited", 0, -1)]
    return found + [time.time() - at for at in sent[len(found) :]]


def cost(backlog: int, *, is_fair: bool) -> dict[str, float]:
    """Redis's microseconds a job, pushed in thousands, claimed in thousands and settled; and bytes of a queued one."""
    with running_redis() as server:
        app = Lowkiq(redis_url=server.url)
        shard = ShardDriver(app, "jobs")
        before = app.redis().info("memory")["used_memory"]
        _push(_worker(app, 1, is_fair=is_fair), "big", backlog)
        figures = {"push, µs a job": _spent(app) / backlog}
        figures["memory, bytes a queued job"] = (app.redis().info("memory")["used_memory"] - before) / backlog
        lease = shard.lease()
        app.redis().config_resetstat()
        done = 0
        while jobs := lease.claim(1000):
            done += len(jobs)
            shard.caller.run(shard.shard.settle("a", lease.epoch, lease.number, Outcome(rest="ack", has_several=False)))
        return figures | {"claim and settle, µs a job": _spent(app) / done}


def _spent(app: Lowkiq) -> float:
    """Microseconds that Redis has spent in scripts."""
    spent = app.redis().info("commandstats")
    app.redis().config_resetstat()
    return float(sum(spent[name]["usec"] for name in ("cmdstat_evalsha", "cmdstat_eval") if name in spent))


def _worker(app: Lowkiq, shards: int, *, is_fair: bool) -> type[Worker[Any]]:
    def perform(payloads_by_id: dict[str, list[Any]]) -> None:
        """Runs in another process."""

    fair_by = (lambda _, payload: payload["tenant"]) if is_fair else None
    return app.worker(queue_name="jobs", shards_count=shards, fair_by=fair_by)(perform)


def _push(worker: type[Worker[Any]], tenant: str, count: int) -> None:
    for first in range(0, count, 10_000):
        jobs = range(first, min(first + 10_000, count))
        worker.perform_async([{"id": f"{tenant}-{n}", "payload": {"tenant": tenant}} for n in jobs])


if __name__ == "__main__":
    sys.exit(main())
