"""Dramatiq on Redis: its own middlewares, no results. A deep prefetch comes from the environment."""

from __future__ import annotations

import os
from typing import Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from benchmarks.peers.apps import stage
from benchmarks.peers.apps.report import MeasuredJob

broker = RedisBroker(url=stage.redis_url())
dramatiq.set_broker(broker)
measured = MeasuredJob()


@dramatiq.actor
def job(identity: str, payload: Any) -> None:  # noqa: ARG001 (what it is about)
    measured(payload)


def enqueue_one(identity: str, payload: Any) -> None:
    job.send(identity, payload)


def work() -> None:
    os.environ["dramatiq_queue_prefetch"] = "1000"  # noqa: SIM112 (its name)
    name = "benchmarks.peers.apps.dramatiq_app"
    stage.become("dramatiq", name, "--processes", "1", "--threads", str(stage.THREADS), "--skip-logging")
