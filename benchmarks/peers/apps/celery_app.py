"""Celery on Redis: threads, no results, no events, a deep prefetch."""

from __future__ import annotations

from typing import Any

from celery import Celery

from benchmarks.peers.apps import stage
from benchmarks.peers.apps.report import MeasuredJob

app = Celery("bench", broker=stage.redis_url())
# A deep prefetch is what its guide advises for many short tasks.
app.conf.update(task_ignore_result=True, worker_prefetch_multiplier=100, worker_send_task_events=False)
measured = MeasuredJob()


@app.task(name="bench")
def job(identity: str, payload: Any) -> None:  # noqa: ARG001 (what it is about)
    measured(payload)


def enqueue_one(identity: str, payload: Any) -> None:
    job.apply_async((identity, payload))


def enqueue_many(jobs: list[stage.Job]) -> None:
    """It has no call for many; a producer that is kept saves looking for one each time."""
    with app.producer_or_acquire() as producer:
        for each in jobs:
            job.apply_async(each, producer=producer)


def work() -> None:
    threads = ("-P", "threads", "-c", str(stage.THREADS))
    calm = ("--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "ERROR")
    stage.become("celery", "-A", "benchmarks.peers.apps.celery_app", "worker", *threads, *calm)
