"""RQ: it has no threads, so five processes that do not fork stand for five threads. No results, JSON."""

from __future__ import annotations

from typing import Any

from redis import Redis
from rq import Queue
from rq.serializers import JSONSerializer

from benchmarks.peers.apps import stage
from benchmarks.peers.apps.report import MeasuredJob

NAME = "benchmarks.peers.apps.rq_app"
queue = Queue("bench", connection=Redis.from_url(stage.redis_url()), serializer=JSONSerializer)
measured = MeasuredJob()


def job(identity: str, payload: Any) -> None:  # noqa: ARG001 (what it is about)
    measured(payload)


def enqueue_one(identity: str, payload: Any) -> None:
    queue.enqueue(f"{NAME}.job", args=(identity, payload), result_ttl=0)


def enqueue_many(jobs: list[stage.Job]) -> None:
    queue.enqueue_many([Queue.prepare_data(f"{NAME}.job", args=each, result_ttl=0) for each in jobs])


def work() -> None:
    pool = ("worker-pool", "bench", "-n", str(stage.THREADS), "-w", "rq.worker.SimpleWorker", "-S", "json", "-q")
    stage.become("rq", *pool, "-u", stage.redis_url())
