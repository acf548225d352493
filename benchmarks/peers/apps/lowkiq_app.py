"""Lowkiq for Python, as shipped."""

from __future__ import annotations

import os
import sys
from typing import Any

from benchmarks.peers.apps import stage
from benchmarks.peers.apps.report import MeasuredJob
from lowkiq import Lowkiq, Worker

app = Lowkiq(redis_url=stage.redis_url())
measured = MeasuredJob()
#: Jobs at a time on the event loop; "": they run on threads.
TASKS = os.environ.get("BENCH_TASKS", "")


@app.worker
class Measured(Worker):
    """Five shards a process: one for each thread."""

    shards_count = int(os.environ.get("BENCH_SHARDS") or stage.THREADS * int(os.environ.get("BENCH_PROCESSES", "1")))
    batch_size = int(os.environ.get("BENCH_BATCH", "1"))

    concurrency = int(TASKS) if TASKS else None

    async def on_loop(self, payloads_by_id: dict[str, list[Any]]) -> None:
        measured.performed()
        for payloads in payloads_by_id.values():
            for payload in payloads:
                await measured.run(payload)

    def on_thread(self, payloads_by_id: dict[str, list[Any]]) -> None:
        measured.performed()
        for payloads in payloads_by_id.values():
            for payload in payloads:
                measured(payload)

    perform: Any = on_loop if TASKS else on_thread


def enqueue_one(identity: str, payload: Any) -> None:
    Measured.perform_async([{"id": identity, "payload": payload}])


def enqueue_many(jobs: list[stage.Job]) -> None:
    Measured.perform_async([{"id": identity, "payload": payload} for identity, payload in jobs])


def work() -> None:
    command = "from lowkiq.cli import main; main()"
    os.execv(sys.executable, [sys.executable, "-c", command, "-r", "benchmarks.peers.apps.lowkiq_app"])
