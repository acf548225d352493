"""SAQ on Redis: uvloop, orjson, results that are not kept."""

from __future__ import annotations

import logging
from typing import Any

import orjson
import uvloop
from saq import Queue, Worker

from benchmarks.peers.apps import stage
from benchmarks.peers.apps.report import MeasuredJob

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


async def run() -> None:
    logging.getLogger("saq").setLevel(logging.ERROR)
    await Worker(make_queue(), functions=[job], concurrency=stage.THREADS).start()


def work() -> None:
    uvloop.run(run())


producer = Producer()
connect, enqueue_one = producer.connect, producer.one
