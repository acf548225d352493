"""The measurements, each one function on a server of its own."""

from __future__ import annotations

import statistics
import time
from functools import partial
from typing import NamedTuple

from benchmarks import server
from benchmarks.workers import JOBS
from lowkiq import Lowkiq, Worker

#: What one small EVALSHA a job costs the Redis client alone, sent so many at a time.
FLOOR_DEPTH = 100
#: Three writes, as any queue needs for a job: it leaves the queue, it is in hand, it is counted.
FLOOR_SCRIPTS = {
    "one write": "return redis.call('INCR', KEYS[3])",
    "three writes": "redis.call('ZADD', KEYS[1], ARGV[1], ARGV[1]) redis.call('HSET', KEYS[2], ARGV[1], ARGV[1]) "
    "return redis.call('INCR', KEYS[3])",
}

LATENCY_JOBS = 300
#: Seconds between two of them: the node has gone idle in between.
LATENCY_PAUSE = 0.01


class Latency(NamedTuple):
    """Milliseconds from push to start."""

    p50: float
    p99: float


def floor_rate(url: str, script: str) -> float:
    """EVALSHA calls a second that the client alone can pipeline."""
    client = Lowkiq(redis_url=url).redis()
    sha = client.script_load(FLOOR_SCRIPTS[script])
    started = time.monotonic()
    for first in range(0, JOBS, FLOOR_DEPTH):
        with client.pipeline(transaction=False) as pipeline:
            for number in range(first, first + FLOOR_DEPTH):
                pipeline.evalsha(str(sha), 3, "bench:index", "bench:hash", "bench:count", str(number))
            pipeline.execute()
    return JOBS / (time.monotonic() - started)


def push_rate(url: str, queue: str = "Blank", jobs: int = JOBS) -> float:
    """Payloads a second that one perform_async of many takes."""
    worker = _worker(Lowkiq(redis_url=url), queue)
    batch = [{"id": f"{number:010d}", "payload": {"n": number}} for number in range(jobs)]
    started = time.monotonic()
    worker.perform_async(batch)  # type: ignore[arg-type]
    return jobs / (time.monotonic() - started)


def blank_rate(url: str) -> float:
    """Blank jobs a second, queued beforehand: from the start of the first to the start of the last."""
    client = Lowkiq(redis_url=url).redis()
    with server.node(url, "benchmarks.workers", "--burst") as process:
        process.wait(server.LIMIT)
    first, last = (float(stamp) for stamp in client.lrange("bench:stamps", 0, -1))
    return JOBS / (last - first)


def idle_latency(url: str) -> Latency:
    """From push to start on a node that has nothing else to do."""
    app = Lowkiq(redis_url=url)
    worker = _worker(app, "Stamp")
    with server.node(url, "benchmarks.workers"):
        for number in range(LATENCY_JOBS):
            worker.perform_async([{"id": number, "payload": time.monotonic()}])
            server.wait_until(partial(_has_length, app, number + 1), 0.001)
            time.sleep(LATENCY_PAUSE)
    # The first ones meet a node that boots.
    values = sorted(float(value) * 1000 for value in app.redis().lrange("bench:latencies", 20, -1))
    return Latency(statistics.median(values), values[int(len(values) * 0.99)])


def queued_bytes(url: str) -> float:
    """Redis's memory for a queued job with an id and a payload of ten bytes each."""
    app = Lowkiq(redis_url=url)
    worker = _worker(app, "Stamp")
    worker.perform_async([{"id": "0"}])
    before = app.redis().info("memory")["used_memory"]
    worker.perform_async([{"id": f"{number:010d}", "payload": f"{number:08d}"} for number in range(JOBS)])
    return float(app.redis().info("memory")["used_memory"] - before) / JOBS


def _has_length(app: Lowkiq, expected: int) -> bool:
    return app.redis().llen("bench:latencies") == expected


def _worker(app: Lowkiq, queue: str) -> type[Worker]:
    class Queue(Worker):
        """The producer's side of a queue."""

    return app.worker(queue_name=queue)(Queue)
