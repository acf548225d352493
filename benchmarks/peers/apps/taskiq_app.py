"""Taskiq on a Redis list, its fastest broker, which loses the job in hand when its worker is killed: orjson, uvloop."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from taskiq.serializers import ORJSONSerializer
from taskiq_redis import ListQueueBroker

from benchmarks.peers.apps import stage
from benchmarks.peers.apps.report import MeasuredJob

#: Enqueued at a time by a producer that has many.
AT_ONCE: Final = 100

broker = ListQueueBroker(stage.redis_url(), max_connection_pool_size=AT_ONCE).with_serializer(ORJSONSerializer())
measured = MeasuredJob()
connect = broker.startup


@broker.task(task_name="bench")
async def job(identity: str, payload: Any) -> None:  # noqa: ARG001 (what it is about)
    await measured.run(payload)


async def enqueue_one(identity: str, payload: Any) -> None:
    await job.kiq(identity, payload)


async def enqueue_many(jobs: list[stage.Job]) -> None:
    """It has no call for many; so many are under way at a time."""
    for first in range(0, len(jobs), AT_ONCE):
        await asyncio.gather(*(enqueue_one(*each) for each in jobs[first : first + AT_ONCE]))


def work() -> None:
    tasks = ("--workers", "1", "--max-async-tasks", str(stage.THREADS), "--max-prefetch", "100", "--no-parse")
    stage.become("taskiq", "worker", "benchmarks.peers.apps.taskiq_app:broker", *tasks, "--log-level", "ERROR")
