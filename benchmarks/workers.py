"""The application that is measured. Its jobs tell Redis when they ran, once at the end or each on its own."""

from __future__ import annotations

import time
from itertools import count
from typing import Any

from lowkiq import Lowkiq, Worker

#: Jobs in one measurement of throughput: the original's own figure.
JOBS = 100_000

app = Lowkiq()


@app.worker
class Blank(Worker):
    """Does nothing but count; the first and the last of JOBS leave a stamp."""

    shards_count = 5
    _done = count(1)

    def perform(self, payloads_by_id: dict[str, list[Any]]) -> None:  # noqa: ARG002 (it is a blank job)
        number = next(self._done)
        if number in {1, JOBS}:
            app.redis().rpush("bench:stamps", time.monotonic())


@app.worker
class Stamp(Worker):
    """Tells how long its job took from push to start: the payload is the time of the push, on the same machine."""

    shards_count = 5

    def perform(self, payloads_by_id: dict[str, list[Any]]) -> None:
        started = time.monotonic()
        for payloads in payloads_by_id.values():
            app.redis().rpush("bench:latencies", started - payloads[0])
