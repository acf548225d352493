"""Telemetry: a span for each push and each batch, and their metrics; their contexts as text, and links made of them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from itertools import islice
from typing import Any, Final

from opentelemetry import metrics, trace
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from lowkiq import clock
from lowkiq.codec import encodable, error_text
from lowkiq.errors import Discard, PartialFailure, RetryIn, Snooze
from lowkiq.job import Job
from lowkiq.log import get_logger
from lowkiq.telemetry import words
from lowkiq.version import VERSION

logger = get_logger()

#: Ids, and errors of ids, that a span tells of.
MOST_TOLD: Final = 10
#: Characters of each of those ids.
TOLD_CHARS: Final = 200
#: Links of a span, at most: those of a batch of a thousand ids that were pushed together are one.
MOST_LINKS: Final = 1_000


class Telemetry:
    """What an application tells OpenTelemetry. Any thread, and any task, may call it."""

    def __init__(self) -> None:
        # Both follow whichever provider the application sets, before or after.
        self._tracer = trace.get_tracer("lowkiq", VERSION, schema_url=words.SCHEMA)
        meter = metrics.get_meter("lowkiq", VERSION, schema_url=words.SCHEMA)
        self._sent = meter.create_counter(words.SENT, "{message}", "Payloads that were pushed, or could not be.")
        self._consumed = meter.create_counter(words.CONSUMED, "{message}", "Payloads that a perform was called with.")
        self._pushing = _seconds(meter, words.OPERATION_DURATION, "Time that a push has taken.")
        self._performing = _seconds(meter, words.PROCESS_DURATION, "Time that a batch has taken.")

    @contextmanager
    def push(self, queue: str, jobs: object) -> Iterator[str]:
        """A PRODUCER span around the push of jobs. Yields its context, as it is kept; "" if nobody will see it."""
        count = len(jobs) if isinstance(jobs, Sized) else 0
        known = _known(queue, "send")
        told = {**known, words.OPERATION_TYPE: "send", words.MESSAGE_COUNT: count}
        began = clock.monotonic()
        error_type: dict[str, str] = {}
        with self._span(f"send {queue}", SpanKind.PRODUCER, told) as span:
            try:
                yield written(span.get_span_context())
            except BaseException as error:
                error_type = _fail(span, error)
                raise
            finally:
                self._sent.add(count, {**known, **error_type})
                self._pushing.record(clock.monotonic() - began, {**known, words.OPERATION_TYPE: "send", **error_type})

    @contextmanager
    def perform(self, queue: str, batch: Sequence[Job], shard: int | None) -> Iterator[None]:
        """A CONSUMER span around a batch, with links to where its payloads were pushed. It is current meanwhile."""
        count = sum(len(job.payloads) for job in batch)
        known = _known(queue, "process")
        if shard is not None:
            known[words.PARTITION] = str(shard)
        told = {
            **known,
            words.OPERATION_TYPE: "process",
            words.MESSAGE_COUNT: count,
            words.IDS: [encodable(job.id[:TOLD_CHARS]) for job in batch[:MOST_TOLD]],
            words.ATTEMPT: max(job.retry_count for job in batch) + 2,
        }
        began = clock.monotonic()
        error_type: dict[str, str] = {}
        self._consumed.add(count, known)
        with self._span(f"process {queue}", SpanKind.CONSUMER, told, links_of(batch)) as span:
            try:
                yield
            except BaseException as error:
                error_type = _fail(span, error)
                raise
            finally:
                self._performing.record(clock.monotonic() - began, {**known, **error_type})

    def _span(self, name: str, kind: SpanKind, told: Mapping[str, Any], links: Sequence[trace.Link] = ()) -> Any:
        # What an exception means is told by `_fail`: not every one is an error.
        return self._tracer.start_as_current_span(
            name, kind=kind, attributes=told, links=links, record_exception=False, set_status_on_exception=False
        )


def flush_providers(timeout: float) -> None:
    """Hands what was told over to whoever exports it, as a process ends without a word. Waits so long for it."""
    flushing = threading.Thread(target=_flush, name="lowkiq-telemetry", daemon=True)
    flushing.start()
    flushing.join(timeout)


def _seconds(meter: metrics.Meter, name: str, description: str) -> metrics.Histogram:
    return meter.create_histogram(name, "s", description, explicit_bucket_boundaries_advisory=words.SECONDS)


def _known(queue: str, operation: str) -> dict[str, Any]:
    return {words.SYSTEM: "lowkiq", words.DESTINATION: queue, words.OPERATION_NAME: operation}


def _fail(span: Span, error: BaseException) -> dict[str, str]:
    """Tells a span what an exception means. Returns what metrics say of it: nothing, where it is no error."""
    if isinstance(error, Snooze | Discard):
        span.set_attribute(words.DECISION, type(error).__name__)
        return {}
    if isinstance(error, PartialFailure):
        _fail_partly(span, error)
    else:
        if isinstance(error, RetryIn):
            span.set_attribute(words.DECISION, "RetryIn")
        shown = error.__cause__ or error if isinstance(error, RetryIn) else error
        with contextlib.suppress(BaseException):  # it may have a text that can't be made
            span.record_exception(shown)
        span.set_status(Status(StatusCode.ERROR, error_text(shown)[:TOLD_CHARS]))
        error = shown
    told = {words.ERROR_TYPE: type.__dict__["__qualname__"].__get__(type(error))}
    span.set_attributes(told)
    return told


def _fail_partly(span: Span, error: PartialFailure) -> None:
    for id, of_one in list(error.errors.items())[:MOST_TOLD]:
        told = {words.ID: encodable(str(id)[:TOLD_CHARS])}
        if isinstance(of_one, BaseException):
            with contextlib.suppress(BaseException):  # as above
                span.record_exception(of_one, told)
        else:
            span.add_event("exception", {"exception.message": encodable(str(of_one)[:TOLD_CHARS]), **told})
    span.set_status(Status(StatusCode.ERROR, f"{len(error.errors)} of the batch's ids have failed"))


def _flush() -> None:
    for provider in (trace.get_tracer_provider(), metrics.get_meter_provider()):
        flush = getattr(provider, "force_flush", None)  # the SDK's own; the API has none
        try:
            if flush:
                flush()
        except Exception:
            logger.exception("telemetry_not_flushed")


def written(context: SpanContext) -> str:
    """A span's context as W3C's traceparent, to be kept beside a payload; "" where nobody would see the span."""
    if not context.is_valid or not context.trace_flags.sampled:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags) & 0xFF:02x}"


def links_of(batch: Sequence[Job]) -> list[Link]:
    """Links to the spans in which the jobs of a batch were pushed, each once."""
    texts = dict.fromkeys(text for job in batch for text in job.contexts)
    return [Link(context) for context in islice(_read(texts), MOST_LINKS)]


def _read(texts: Iterable[str]) -> Iterable[SpanContext]:
    for text in texts:
        _, trace_id, span_id, flags = text.split("-")
        context = SpanContext(
            int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=TraceFlags(int(flags, 16))
        )
        if context.is_valid:
            yield context
