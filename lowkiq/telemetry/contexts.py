"""Contexts of spans as text, which Redis keeps beside the payloads of an id, and links made of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

from opentelemetry.trace import Link, SpanContext, TraceFlags

from lowkiq.job import Job

#: Links of a span, at most: those of a batch of a thousand ids that were pushed together are one.
MOST_LINKS: Final = 1_000


def written(context: SpanContext) -> str:
    """A span's context as W3C's traceparent, "" where nobody would see the span: that is not worth being kept."""
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
