"""Timeline: when what is known to have happened to an id happened, or will."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lowkiq.admin.nodes import Running
from lowkiq.admin.reader import JobPreview
from lowkiq.web.render import words

#: Pushes that are told one by one.
PUSHES = 5

_WORDS = {"queue": "queued", "claim": "in flight", "morgue": "in the morgue"}


@dataclass(frozen=True)
class Event:
    """One of them."""

    at: float
    text: str


def timeline_of(places: Sequence[JobPreview], running: Running | None) -> list[Event]:
    """The earliest first. Lowkiq keeps no log: what left no trace in Redis is not told."""
    # Where payloads are in several places, it matters which were pushed when.
    suffixes = [f" ({_WORDS[job.where]})" if len(places) > 1 else "" for job in places]
    events = [
        event
        for job, suffix in zip(places, suffixes, strict=True)
        for event in (*_pushes(job, suffix), *_of_place(job, running))
    ]
    return sorted(events, key=lambda event: event.at)


def _pushes(job: JobPreview, suffix: str) -> Iterator[Event]:
    """Scores are push times, unless the user gave others."""
    known = [payload.score for payload in job.payloads if words.is_time(payload.score)]
    if len(known) <= PUSHES:
        yield from (Event(at, f"pushed{suffix}") for at in known)
        return
    yield Event(known[0], f"first of {job.payload_count:,} payloads pushed{suffix}")
    text = "last of them pushed" if len(known) == job.payload_count else f"number {len(known):,} of them pushed"
    yield Event(known[-1], f"{text}{suffix}")


def _of_place(job: JobPreview, running: Running | None) -> Iterator[Event]:
    match job.where:
        case "morgue":
            yield Event(job.at, "moved to the morgue")
        case "queue":
            yield Event(
                job.at,
                "due" if job.retry_count < 0 else f"due again, after {words.plural(job.retry_count + 1, 'failure')}",
            )
        case "claim":
            yield Event(job.at, "due, and claimed since")
            if running is not None and running.has(job.id) is True:
                yield Event(running.node.beat_at - running.thread.seconds, "its performing began")
