"""Telemetry: spans of pushes and batches, linked over Redis, and metrics, by the conventions for messaging."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from lowkiq import InvalidJob, Lowkiq, SettingsError, Worker
from lowkiq.handlers.loop_thread import LoopThread
from lowkiq.handlers.performer import Performer
from lowkiq.job import Job
from lowkiq.queue.shard import Shard
from lowkiq.telemetry.texts import MARK, MOST_CONTEXTS, parse_contexts, with_context
from tests.queue.shard_driver import ShardDriver
from tests.support import ROOT, SOURCES

PUSHED = "00-%032x-%016x-01"


class Told:
    """What was told to OpenTelemetry since the test began."""

    def __init__(self, exporter: InMemorySpanExporter, reader: InMemoryMetricReader) -> None:
        self._exporter = exporter
        self._reader = reader

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self._exporter.get_finished_spans()

    def points(self, name: str) -> list[Any]:
        data: Any = self._reader.get_metrics_data()
        return [
            point
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[Told]:
    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracers, meters = TracerProvider(), MeterProvider([reader])
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    # A process can set them once; tests, each.
    monkeypatch.setattr(trace, "get_tracer", lambda name, *_, **__: tracers.get_tracer(name))
    monkeypatch.setattr(metrics, "get_meter", lambda name, *_, **__: meters.get_meter(name))
    yield Told(exporter, reader)
    tracers.shutdown()
    meters.shutdown()


@pytest.fixture
def work(told: Told, make_app: Callable[..., Lowkiq]) -> type[Worker]:
    @make_app(telemetry=True).worker(queue_name="q", shards_count=1)
    def work(payloads_by_id: dict[str, list[Any]]) -> None: ...

    return work


def context_of(span: ReadableSpan) -> str:
    context = span.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"


def claimed(shard: ShardDriver) -> dict[str, Job]:
    return {job.id: job for job in shard.lease().claim()}


@pytest.fixture
def q(make_app: Callable[..., Lowkiq]) -> ShardDriver:
    """The shard of the worker's queue."""
    driver = ShardDriver(make_app())
    driver.shard = Shard(driver.shard.namespace, "q", 0, 1)
    return driver


# ── pushes ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_push_is_a_producer_span_whose_context_comes_with_its_jobs(work, q, told):
    work.perform_async([{"id": "a", "payload": 1}, {"id": "b", "payload": 1, "tags": ["x"]}])
    (span,) = told.spans
    assert (span.name, span.kind) == ("send q", SpanKind.PRODUCER)
    assert dict(span.attributes) == {
        "messaging.system": "lowkiq",
        "messaging.destination.name": "q",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.batch.message_count": 2,
    }
    jobs = claimed(q)
    assert {id: (job.contexts, job.tags) for id, job in jobs.items()} == {
        "a": ((context_of(span),), ()),
        "b": ((context_of(span),), ("x",)),
    }
    (sent,) = told.points("messaging.client.sent.messages")
    assert sent.value == 2 and sent.attributes["messaging.destination.name"] == "q"
    (took,) = told.points("messaging.client.operation.duration")
    assert took.count == 1 and took.attributes["messaging.operation.name"] == "send"


def test_equal_payloads_merge_and_bring_both_contexts(work, q, told):
    for _ in range(2):
        work.perform_async([{"id": "a", "payload": 1}])
    job = claimed(q)["a"]
    assert job.payloads == [b"1"] and job.contexts == tuple(map(context_of, told.spans))


def test_an_awaited_push_has_the_context_of_its_own_task(work, q, told):
    async def push(id: str) -> None:
        await work.aperform_async([{"id": id, "payload": n} for n in range(3)])

    async def main() -> None:
        with trace.get_tracer("mine").start_as_current_span("request"):
            await asyncio.gather(push("a"), push("b"))
        await work.app.aclose()

    asyncio.run(main())
    one, other, request = told.spans
    assert {span.parent.span_id for span in (one, other)} == {request.get_span_context().span_id}
    assert {job.contexts for job in claimed(q).values()} == {(context_of(one),), (context_of(other),)}


def test_a_push_that_fails_is_an_error_and_nothing_is_counted_as_well(work, told):
    with pytest.raises(InvalidJob):
        work.perform_async([{"id": "a", "payload": object()}])
    (span,) = told.spans
    assert span.status.status_code is StatusCode.ERROR and span.attributes["error.type"] == "InvalidJob"
    assert [event.name for event in span.events] == ["exception"]
    (took,) = told.points("messaging.client.operation.duration")
    assert took.attributes["error.type"] == "InvalidJob"


def test_a_span_that_nobody_will_see_is_not_kept(make_app, q):
    """There is no SDK, or it does not sample the span: the push goes the quickest way."""

    @make_app(telemetry=True).worker(queue_name="q", shards_count=1)
    def work(payloads_by_id: dict[str, list[Any]]) -> None: ...

    work.perform_async([{"id": "a"}])
    assert q.names() <= {"meta", "due", "payloads"}


def test_the_latest_contexts_of_an_id_stay(q):
    for number in range(1, MOST_CONTEXTS + 3):
        q.push("a", b"%d" % number, tags=with_context("x", PUSHED % (number, number)))
    job = claimed(q)["a"]
    assert job.tags == ("x",)
    assert job.contexts == tuple(PUSHED % (number, number) for number in range(3, MOST_CONTEXTS + 3))


def test_contexts_are_found_by_no_search_and_shown_to_nobody(work, q):
    work.perform_async([{"id": "a", "tags": ["x"]}])
    work.perform_async([{"id": "b"}])
    assert [row.tag for row in work.queries.top(5)] == ["x"]
    assert {job.id: job.tags for job in work.queries.fetch(["a", "b"])} == {"a": ("x",), "b": ()}
    q.look().check_tags()


def test_what_is_no_context_is_left_out():
    good = PUSHED % (1, 2)
    junk = [b"", b"x", MARK.encode(), b"\1" + b"0" * 55, f"{MARK}{good[:-1]}".encode(), b"\1\xff" + good.encode()]
    assert parse_contexts(b"\n".join([*junk, with_context("", good).encode()])) == (good,)
    assert len(parse_contexts(b"\n".join([with_context("", good).encode()] * 99))) == MOST_CONTEXTS


# ── batches ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def perform(make_app: Callable[..., Lowkiq], action: Callable[[], Any], *jobs: Job) -> None:
    class Work(Worker):
        queue_name = "q"

        def perform(self, payloads_by_id: dict[str, list[Any]]) -> None:
            action()

    make_app().worker(Work)
    settings = make_app(telemetry=True, traceback_frames=0).settings
    Performer(Work(), settings, lambda error: None, LoopThread()).perform(list(jobs))


def job(id: str, *contexts: str) -> Job:
    return Job(id, [1, 2], (1.0, 2.0), 0.0, contexts=contexts)


def test_a_batch_is_a_consumer_span_with_links_to_every_push_once(make_app, told):
    one, other = PUSHED % (1, 2), PUSHED % (3, 4)
    perform(make_app, lambda: trace.get_tracer("mine").start_span("inside").end(), job("a", one, other), job("b", one))
    inside, span = told.spans
    assert (span.name, span.kind, span.parent) == ("process q", SpanKind.CONSUMER, None)
    assert [(link.context.trace_id, link.context.span_id, link.context.is_remote) for link in span.links] == [
        (1, 2, True),
        (3, 4, True),
    ]
    assert dict(span.attributes) == {
        "messaging.system": "lowkiq",
        "messaging.destination.name": "q",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.batch.message_count": 4,
        "lowkiq.ids": ("a", "b"),
        "lowkiq.attempt": 1,
    }
    assert inside.parent.span_id == span.get_span_context().span_id
    (consumed,) = told.points("messaging.client.consumed.messages")
    assert consumed.value == 4
    (took,) = told.points("messaging.process.duration")
    assert took.count == 1 and "error.type" not in took.attributes


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize("error", [KeyError("no"), Unspeakable()])
def test_an_error_is_of_the_span_and_of_its_metrics(make_app, told, error):
    def fail() -> None:
        raise error

    perform(make_app, fail, job("a"))
    (span,) = told.spans
    assert span.status.status_code is StatusCode.ERROR and span.attributes["error.type"] == type(error).__name__
    (took,) = told.points("messaging.process.duration")
    assert took.attributes["error.type"] == type(error).__name__


# ── real nodes ──────────────────────────────────────────────────────────────────────────────────────────────────────


def run_node(
    app: Lowkiq, queue: str, told: Path, *, is_told: bool = True
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """A node that runs what is due. Returns its spans, and what its jobs have logged."""
    environment = os.environ | {
        "REDIS_URL": app.settings.redis_url, "LOWKIQ_NAMESPACE": app.settings.namespace, "PYTHONPATH": SOURCES,
        "TOLD": str(told), "LOWKIQ_POLL_INTERVAL": "0.05", "LOWKIQ_TELEMETRY": str(is_told).lower(),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests/telemetry/script.py"), queue], env=environment, capture_output=True,
        text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    spans = [json.loads(line) for line in told.read_text().splitlines()] if is_told else []
    return spans, [line for line in lines if line["event"] == "performs"]


@pytest.mark.parametrize("queue", ["thread", "async", "process"])
def test_a_batch_is_linked_to_its_pushes_and_its_log_lines_say_whose_they_are(
    queue: str, make_app: Callable[..., Lowkiq], told: Told, tmp_path: Path
) -> None:
    app = make_app(telemetry=True)

    @app.worker(queue_name=queue, shards_count=1)
    def work(payloads_by_id: dict[str, list[Any]]) -> None: ...

    for payload in (1, 2):
        work.perform_async([{"id": "17", "payload": payload}])
    spans, logged = run_node(app, queue, tmp_path / "told")
    inside, span = sorted(spans, key=lambda span: span["name"])
    assert (inside["name"], span["name"], span["kind"]) == ("inside", f"process {queue}", "SpanKind.CONSUMER")
    assert inside["parent_id"] == span["context"]["span_id"]
    pushed = [f"0x{pushed.get_span_context().span_id:016x}" for pushed in told.spans]
    assert [link["context"]["span_id"] for link in span["links"]] == pushed
    assert span["attributes"]["messaging.batch.message_count"] == 2
    assert span["attributes"]["messaging.destination.partition.id"] == "0"
    (line,) = logged
    fields = {name: line.get(name) for name in ("queue", "shard", "ids", "attempt", "node")}
    assert fields == {"queue": queue, "shard": 0, "ids": ["17"], "attempt": 1, "node": "node-1"}


def test_each_job_of_a_claim_logs_its_own_id_and_attempt(make_app, tmp_path):
    app = make_app()

    @app.worker(queue_name="single", shards_count=1)
    def work(id: str, payloads: list[Any]) -> None: ...

    work.perform_async([{"id": str(n), "payload": "log" if n % 3 == 0 else "blank"} for n in range(50)])
    _, logged = run_node(app, "single", tmp_path / "told", is_told=False)
    # Ids have no order among each other: of one that runs for long, the thread's shards go on elsewhere.
    assert sorted(int(id) for line in logged for id in line["ids"]) == [*range(0, 50, 3)]
    assert {len(line["ids"]) for line in logged} == {1}
    assert {(line["queue"], line["attempt"]) for line in logged} == {("single", 1)}


@pytest.mark.parametrize("queue", ["thread", "async", "process"])
def test_errors_of_batches_are_recorded_and_decisions_are_none(queue, make_app, tmp_path):
    app = make_app()

    @app.worker(queue_name=queue, shards_count=1)
    def work(payloads_by_id: dict[str, list[Any]]) -> None: ...

    for what in ("fail", "partly", "snooze"):
        work.perform_async([{"id": what, "payload": what}])
        spans, _ = run_node(app, queue, tmp_path / what)
        span = max(spans, key=lambda span: span["name"])
        attributes, status = span["attributes"], span["status"]["status_code"]
        if what == "snooze":
            assert (status, attributes["lowkiq.decision"]) == ("UNSET", "Snooze")
        else:
            assert (status, attributes["error.type"]) == (
                "ERROR", "KeyError" if what == "fail" else "PartialFailure"
            )  # fmt: skip
            (event,) = span["events"]
            assert event["attributes"]["exception.type"] == ("KeyError" if what == "fail" else "ValueError")


# ── without it ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_missing_package_is_named(monkeypatch):
    for name in [*sys.modules]:
        if name.startswith("lowkiq.telemetry."):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(SettingsError, match=r"telemetry=True needs opentelemetry.*: pip install 'lowkiq\[otel\]'"):
        Lowkiq(telemetry=True)


def test_lowkiq_imports_nothing_of_it_unless_asked():
    # (redis-py may import OpenTelemetry by itself.)
    source = "import sys, lowkiq.node.node; lowkiq.Lowkiq(); sys.exit('lowkiq.telemetry.spans' in sys.modules)"
    subprocess.run([sys.executable, "-c", source], check=True, env=os.environ | {"PYTHONPATH": SOURCES}, timeout=60)


def test_it_may_be_asked_for_by_the_environment(monkeypatch):
    for text, is_wanted in (("1", True), ("true", True), ("0", False), ("", False)):
        monkeypatch.setenv("LOWKIQ_TELEMETRY", text)
        assert Lowkiq().settings.telemetry is is_wanted
    for wrong in ("yes", "2"):
        monkeypatch.setenv("LOWKIQ_TELEMETRY", wrong)
        with pytest.raises(SettingsError, match="LOWKIQ_TELEMETRY must be true or false"):
            Lowkiq()
    monkeypatch.delenv("LOWKIQ_TELEMETRY")
    with pytest.raises(SettingsError, match="telemetry must be True or False, not 1"):
        Lowkiq(telemetry=1)
