"""Our enqueue beside the client's bare LPUSH, in turns of one process: both on the same core, in the same mood."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import closing
from itertools import count
from typing import Any

import redis

from lowkiq import Lowkiq, Worker

#: Seconds of a turn: many pushes, and short beside the machine's moods.
TURN = 0.025


def single_by_bare(url: str, seconds: float = 1.0) -> float:
    """Single enqueues a second by bare LPUSHes a second: the median of all turns."""
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
