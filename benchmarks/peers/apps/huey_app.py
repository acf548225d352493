"""Huey on Redis: blocking reads, threads, no results, no scheduler of periodic tasks."""

from __future__ import annotations

from typing import Any

from huey import RedisHuey

from benchmarks.peers.apps import stage
from benchmarks.peers.apps.report import MeasuredJob

huey = RedisHuey("bench", url=stage.redis_url(), results=False, blocking=True)
measured = MeasuredJob()


@huey.task(name="bench")  # type: ignore[untyped-decorator, unused-ignore]
def job(identity: str, payload: Any) -> None:  # noqa: ARG001 (what it is about)
    measured(payload)


def enqueue_one(identity: str, payload: Any) -> None:
    job(identity, payload)


def work() -> None:
    calm = ("-n", "-q", "-f", "-C")
    stage.become(
        "huey_consumer", "benchmarks.peers.apps.huey_app.huey", "-k", "thread", "-w", str(stage.THREADS), *calm
    )
