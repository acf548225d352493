"""streaQ: uvloop, JSON, a deep prefetch, results that are not kept."""

from __future__ import annotations

import json
from typing import Any

from streaq import Worker

from benchmarks.peers.apps import stage
from benchmarks.peers.apps.report import MeasuredJob

worker = Worker(
    redis_url=stage.redis_url(),
    concurrency=stage.THREADS,
    prefetch=100,
    serializer=json.dumps,
    deserializer=json.loads,
    anyio_kwargs={"use_uvloop": True},
)
measured = MeasuredJob()


@worker.task(ttl=0, name="bench")
async def job(identity: str, payload: Any) -> None:  # noqa: ARG001 (what it is about)
    await measured.run(payload)


async def connect() -> None:
    await worker.__aenter__()  # it stays entered as long as the process lives


async def enqueue_one(identity: str, payload: Any) -> None:
    await job.enqueue(identity, payload)


async def enqueue_many(jobs: list[stage.Job]) -> None:
    await worker.enqueue_many([job.enqueue(*each) for each in jobs])


def work() -> None:
    """Runs without its command, which logs two lines a job."""
    worker.run_sync()
