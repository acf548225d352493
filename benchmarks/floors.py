"""Floors: what the Redis client can do at all, without any queue; and our enqueue beside its bare LPUSH."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from itertools import count
from typing import Any

import redis

from lowkiq import Lowkiq, Worker
from tests.support import wait_until

#: EVALSHA calls that one pipeline carries.
DEPTH = 100
#: Three writes, as any queue needs for a job: it leaves the queue, it is in hand, it is counted.
SCRIPTS = {
    "one write": "return redis.call('INCR', KEYS[3])",
    "three writes": "redis.call('ZADD', KEYS[1], ARGV[1], ARGV[1]) redis.call('HSET', KEYS[2], ARGV[1], ARGV[1]) "
    "return redis.call('INCR', KEYS[3])",
}
KEYS = ("bench:index", "bench:hash", "bench:count")

#: What the other process of `rung` does: it waits for pushes, which say when they began, and tells how long each took.
LISTENER = """
import sys, time, redis
client = redis.Redis.from_url(sys.argv[1])
while True:
    _, began = client.blpop("bench:bell")
    client.rpush("bench:heard", time.monotonic() - float(began))
"""
#: Seconds of a turn of `single_by_bare`: many pushes, and short beside the machine's moods.
TURN = 0.025
#: Seconds between two pushes: the listener has gone idle in between.
PAUSE = 0.02


def pipelined(url: str, script: str, calls: int = 100_000) -> float:
    """EVALSHA calls a second that redis-py can pipeline, so many deep."""
    with closing(redis.Redis.from_url(url)) as client:
        sha = str(client.script_load(SCRIPTS[script]))
        started = time.monotonic()
        for first in range(0, calls, DEPTH):
            with client.pipeline(transaction=False) as pipeline:
                for number in range(first, first + DEPTH):
                    pipeline.evalsha(sha, len(KEYS), *KEYS, str(number))
                pipeline.execute()
        return calls / (time.monotonic() - started)


def round_trips(url: str, threads: int = 1, seconds: float = 1.0) -> float:
    """EVALSHA calls of three writes a second, a round trip each: what a queue does that takes its jobs one by one."""
    with closing(redis.Redis.from_url(url)) as client:
        sha = str(client.script_load(SCRIPTS["three writes"]))
        until = time.monotonic() + seconds

        def call() -> int:
            calls = 0
            while time.monotonic() < until:
                client.evalsha(sha, len(KEYS), *KEYS, str(calls))
                calls += 1
            return calls

        with ThreadPoolExecutor(threads) as pool:
            return sum(future.result() for future in [pool.submit(call) for _ in range(threads)]) / seconds


def rung(url: str, pushes: int = 100) -> float:
    """Milliseconds from an LPUSH to where another process blocks on it, median: the least that a wake-up can be."""
    listener = subprocess.Popen([sys.executable, "-c", LISTENER, url])
    try:
        with closing(redis.Redis.from_url(url)) as client:
            for number in range(1, pushes + 1):
                client.lpush("bench:bell", time.monotonic())
                wait_until(partial(_has_heard, client, number), within=120)
                time.sleep(PAUSE)
            heard = [float(seconds) for seconds in client.lrange("bench:heard", pushes // 10, -1)]
            return statistics.median(heard) * 1e3
    finally:
        listener.kill()
        listener.wait()


def _has_heard(client: redis.Redis, pushes: int) -> bool:
    return client.llen("bench:heard") == pushes


def single_by_bare(url: str, seconds: float = 1.0) -> float:
    """
    Single enqueues a second by bare LPUSHes a second, in turns of one process: both on the same core, in the same mood.
    The median of all turns.
    """
    with closing(Lowkiq(redis_url=url)) as app, closing(redis.Redis.from_url(url)) as client:

        @app.worker
        class Pushed(Worker):
            def perform(self, payloads_by_id: dict[str, list[Any]]) -> None:
                """Nobody works here."""

        ids = count()

        def ours() -> None:
            Pushed.perform_async([{"id": f"{next(ids):010d}", "payload": {"n": 1}}])

        def bare() -> None:
            client.lpush("bench:list", b'{"n":1}')

        _turn(ours)
        _turn(bare)
        turns = max(3, round(seconds / TURN / 2))
        return statistics.median(_turn(ours) / _turn(bare) for _ in range(turns))


def _turn(push: Callable[[], None]) -> float:
    """Pushes a second."""
    pushed, started = 0, time.perf_counter()
    while (taken := time.perf_counter() - started) < TURN:
        push()
        pushed += 1
    return pushed / taken
