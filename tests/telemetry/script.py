"""A node that writes its spans, metrics and log lines to a file. A program that tests run."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import structlog
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from lowkiq import Lowkiq, PartialFailure, Snooze, log
from lowkiq.node.node import Node

TOLD = Path(os.environ["TOLD"])


class ToFile(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        with TOLD.open("a") as file:
            for span in spans:
                file.write(json.dumps(json.loads(span.to_json(indent=None)), sort_keys=True) + "\n")
        return SpanExportResult.SUCCESS


def begin() -> None:
    provider = TracerProvider()
    # Longer than the test: what arrives was flushed.
    provider.add_span_processor(BatchSpanProcessor(ToFile(), schedule_delay_millis=600_000))
    trace.set_tracer_provider(provider)
    metrics.set_meter_provider(MeterProvider([InMemoryMetricReader()]))


app = Lowkiq(on_server_init=begin, traceback_frames=0)  # and telemetry, if LOWKIQ_TELEMETRY says so
logger = structlog.get_logger("job")


def act(payloads_by_id: dict[str, list[Any]]) -> None:
    logger.info("performs")
    with trace.get_tracer("mine").start_as_current_span("inside"):
        what = next(iter(payloads_by_id.values()))[-1]
        if what == "fail":
            raise KeyError("no")
        if what == "partly":
            raise PartialFailure({next(iter(payloads_by_id)): ValueError("bad")})
        if what == "snooze":
            raise Snooze(1_000)


@app.worker(queue_name="thread", shards_count=1, batch_size=10, max_retry_count=0)
def on_thread(payloads_by_id: dict[str, list[Any]]) -> None:
    act(payloads_by_id)


@app.worker(queue_name="async", shards_count=1, batch_size=10, max_retry_count=0)
async def on_loop(payloads_by_id: dict[str, list[Any]]) -> None:
    act(payloads_by_id)


@app.worker(queue_name="process", shards_count=1, batch_size=10, max_retry_count=0, isolation="process")
def in_process(payloads_by_id: dict[str, list[Any]]) -> None:
    act(payloads_by_id)


@app.worker(queue_name="single", shards_count=1)
def blank(id: str, payloads: list[Any]) -> None:
    if payloads != ["blank"]:
        logger.info("performs")


if __name__ == "__main__":
    log.configure()
    logging.getLogger("opentelemetry").setLevel(logging.ERROR)
    sys.exit(Node(app, queues=[sys.argv[1]], burst=True, name="node-1", ends_process=True).run())
