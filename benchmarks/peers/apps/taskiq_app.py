"""Taskiq on a Redis list, its fastest broker, which loses the job in hand when its worker is killed: orjson, uvloop."""

from __future__ import annotations

from typing import Any

from taskiq.serializers import ORJSONSerializer
from taskiq_redis import ListQueueBroker

from benchmarks.peers.apps import stage
from benchmarks.peers.apps.report import MeasuredJob

broker = ListQueueBroker(stage.redis_url(), max_connection_pool_size=stage.AT_ONCE).with_serializer(ORJSONSerializer())
measured = MeasuredJob()
connect = broker.startup


@broker.task(task_name="bench")
async def job(identity: str, payload: Any) -> None:  # noqa: ARG001 (what it is about)
    await measured.run(payload)


async def enqueue_one(identity: str, payload: Any) -> None:
    await job.kiq(identity, payload)


def work() -> None:
    tasks = ("--workers", "1", "--max-async-tasks", str(stage.THREADS), "--max-prefetch", "100", "--no-parse")
    stage.become("taskiq", "worker", "benchmarks.peers.apps.taskiq_app:broker", *tasks, "--log-level", "ERROR")
