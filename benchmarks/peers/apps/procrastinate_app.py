"""Procrastinate on PostgreSQL: LISTEN, finished jobs deleted. BENCH_REDIS names the database here."""

from __future__ import annotations

from typing import Any

from procrastinate import App, PsycopgConnector

from benchmarks.peers.apps import stage
from benchmarks.peers.apps.report import MeasuredJob

NAME = "benchmarks.peers.apps.procrastinate_app"
#: A statement has so many at a time.
AT_ONCE = 1_000

app = App(connector=PsycopgConnector(conninfo=stage.redis_url()), import_paths=[NAME])
measured = MeasuredJob()


@app.task(name="bench", queue="bench")
async def job(identity: str, payload: Any) -> None:  # noqa: ARG001 (what it is about)
    await measured.run(payload)


async def connect() -> None:
    await app.open_async()
    if not await app.check_connection_async():
        await app.schema_manager.apply_schema_async()


async def enqueue_one(identity: str, payload: Any) -> None:
    await job.defer_async(identity=identity, payload=payload)


async def enqueue_many(jobs: list[stage.Job]) -> None:
    rows = [{"identity": identity, "payload": payload} for identity, payload in jobs]
    for first in range(0, len(rows), AT_ONCE):
        await job.batch_defer_async(*rows[first : first + AT_ONCE])


def work() -> None:
    """Runs without its command, which logs two lines a job."""
    app.run_worker(queues=["bench"], concurrency=stage.THREADS, delete_jobs="always")
