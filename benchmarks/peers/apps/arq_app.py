"""arq: uvloop, no results, JSON, and polls often: it asks Redis every poll_delay, half a second as shipped."""

from __future__ import annotations

import json
from typing import Any

from arq import create_pool
from arq.connections import ArqRedis, RedisSettings

from benchmarks.peers.apps import stage
from benchmarks.peers.apps.report import MeasuredJob

measured = MeasuredJob()


def serialize(data: dict[str, Any]) -> bytes:
    return json.dumps(data, separators=(",", ":")).encode()


async def job(context: dict[str, Any], identity: str, payload: Any) -> None:  # noqa: ARG001 (what it is about)
    await measured.run(payload)


class WorkerSettings:
    """Settings of the `arq` command."""

    functions = (job,)
    redis_settings = RedisSettings.from_dsn(stage.redis_url())
    max_jobs = stage.THREADS
    poll_delay = 0.01
    keep_result = 0
    queue_read_limit = 100
    job_serializer = serialize
    job_deserializer = json.loads


class Producer:
    """Holds the pool, which is made within the loop."""

    pool: ArqRedis

    async def connect(self) -> None:
        self.pool = await create_pool(WorkerSettings.redis_settings, job_serializer=serialize)

    async def one(self, identity: str, payload: Any) -> None:
        await self.pool.enqueue_job("job", identity, payload)


def work() -> None:
    import uvloop  # noqa: PLC0415 (only the worker needs it)

    uvloop.install()
    from arq.worker import run_worker  # noqa: PLC0415

    run_worker(WorkerSettings)


producer = Producer()
connect, enqueue_one = producer.connect, producer.one
