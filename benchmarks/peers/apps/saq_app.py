"""SAQ on Redis: uvloop, orjson, results that are not kept."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

import orjson
import uvloop
from saq import Queue, Worker

from benchmarks.peers.apps import stage
from benchmarks.peers.apps.report import MeasuredJob

#: Enqueued at a time by a producer that has many.
AT_ONCE: Final = 100

measured = MeasuredJob()


def make_queue() -> Queue:
    return Queue.from_url(stage.redis_url(), name="bench", dump=orjson.dumps, load=orjson.loads)


async def job(context: dict[str, Any], *, identity: str, payload: Any) -> None:  # noqa: ARG001 (what it is about)
    await measured.run(payload)


class Producer:
    """Holds the queue, which is made within the loop."""

    queue: Queue

    async def connect(self) -> None:
        self.queue = make_queue()
        await self.queue.connect()

    async def one(self, identity: str, payload: Any) -> None:
        await self.queue.enqueue("job", identity=identity, payload=payload, ttl=-1)

    async def many(self, jobs: list[stage.Job]) -> None:
        """It has no call for many that does not wait for them; so many are under way at a time."""
        for first in range(0, len(jobs), AT_ONCE):
            await asyncio.gather(*(self.one(*each) for each in jobs[first : first + AT_ONCE]))


async def run() -> None:
    logging.getLogger("saq").setLevel(logging.ERROR)
    await Worker(make_queue(), functions=[job], concurrency=stage.THREADS).start()


def work() -> None:
    uvloop.run(run())


producer = Producer()
connect, enqueue_one, enqueue_many = producer.connect, producer.one, producer.many
