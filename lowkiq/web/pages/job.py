"""Page of a job: its id wherever it is, with payloads, error, why it waits, and what can be done about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from starlette.exceptions import HTTPException

from lowkiq.admin.beats.health import Running, batch_of
from lowkiq.admin.jobs.actions import actions_of
from lowkiq.admin.jobs.deeds import DEEDS
from lowkiq.admin.jobs.finder import FoundJob
from lowkiq.admin.jobs.reader import JobPreview
from lowkiq.admin.jobs.tracking import Transition
from lowkiq.admin.jobs.undo import KEPT_SECONDS
from lowkiq.admin.pauses import MOST_WHY, Hold
from lowkiq.admin.why.reasons import Reason, held_text
from lowkiq.failure import main_line
from lowkiq.web.pages.actions import result_of, undo_of
from lowkiq.web.pages.live import Visit
from lowkiq.web.pages.queue import max_retry_count, when_exhausted
from lowkiq.web.render import formatting
from lowkiq.web.render.payloads import PayloadText, payload_texts
from lowkiq.web.view import View

#: Pushes that the timeline lists one by one.
PUSHES: Final = 5
#: Where → the view whose form its buttons send.
VIEWS: Final = {"queue": "due", "claim": "due", "morgue": "morgue"}


@dataclass(frozen=True)
class Section:
    """A section of the page: the id in one of the places that it can be in."""

    job: JobPreview
    view: str
    reason: Reason
    payloads: Sequence[PayloadText]
    buttons: Sequence[str]
    #: The batch that performs it, if it is surely of that.
    running: Running | None

    @property
    def error(self) -> str:
        """The line of its last error that says most; the traceback has the others."""
        return main_line(self.job.error)

    @property
    def left_out(self) -> int:
        """Payloads that are not shown."""
        return self.job.payload_count - len(self.payloads)


class Event(NamedTuple):
    """Something that happened to an id, or will."""

    at: float
    text: str


def build(view: View, visit: Visit) -> Mapping[str, Any]:
    """The page of a job."""
    queue, id = visit.queue(), visit.query.get("id", "")
    if not id:
        raise HTTPException(404, "There is no job without an id.")
    places = _find(view, queue, id) if visit.reads else []
    hold = _hold(view, queue, id) if visit.reads else None
    is_tracked, transitions = _history(view, queue, id) if visit.reads else (False, [])
    snapshot = visit.snapshot
    # An id has one shard, wherever it is.
    number = places[0].shard if places else 0
    shard, batches = snapshot.shard(queue, number), snapshot.running(queue, number)
    batch = batch_of(id, batches)
    running = batch if batch and batch.has(id) else None
    reasons = view.backend.reasons(snapshot.around, [FoundJob(queue, job) for job in places])
    return {
        "queue": queue,
        "id": id,
        "places": [_place(view, job, reason, running) for job, reason in zip(places, reasons, strict=True)],
        "hold": hold,
        "held": held_text(hold, snapshot.at) if hold else "",
        "timeline": _timeline(places, [reason.state for reason in reasons], running),
        "shard": shard,
        "is_tracked": is_tracked,
        "transitions": transitions,
        "max_retry_count": max_retry_count(view, visit, queue),
        "when_exhausted": when_exhausted(view, visit, queue),
        "shows_payloads": view.payloads,
        "deeds": DEEDS,
        "result": result_of(visit.query),
        "undo": undo_of(visit.query),
        "undo_seconds": KEPT_SECONDS,
        "most_why": MOST_WHY,
    }


def _find(view: View, queue: str, id: str) -> list[JobPreview]:
    try:
        return view.backend.previews(queue).job(id)
    except ValueError:  # too long, or no text: nothing has such an id
        return []


def _hold(view: View, queue: str, id: str) -> Hold | None:
    try:
        return view.backend.hold_of(queue, id)
    except ValueError:  # as above
        return None


def _history(view: View, queue: str, id: str) -> tuple[bool, list[Transition]]:
    try:
        return view.backend.history(queue, id)
    except ValueError:  # as above
        return False, []


def _place(view: View, job: JobPreview, reason: Reason, running: Running | None) -> Section:
    return Section(
        job=job,
        view=(on := "blocked" if job.is_blocked else VIEWS[job.where]),
        reason=reason,
        payloads=payload_texts(job, view.app.settings.load_payload if view.payloads else None),
        buttons=() if view.read_only else ("cancel",) if job.where == "claim" else actions_of(on),
        running=running if job.where == "claim" else None,
    )


def _timeline(places: Sequence[JobPreview], states: Sequence[str], running: Running | None) -> list[Event]:
    """Events, the earliest first. Lowkiq keeps no log: what left no trace in Redis is missing."""
    # Where payloads are in several places, it matters which were pushed when.
    suffixes = [f" ({state.lower()})" if len(places) > 1 else "" for state in states]
    events = [
        event
        for job, suffix in zip(places, suffixes, strict=True)
        for event in (*_pushes(job, suffix), *_of_place(job, running))
    ]
    return sorted(events, key=lambda event: event.at)


def _pushes(job: JobPreview, suffix: str) -> Iterator[Event]:
    """Pushes by their scores, which are push times unless the user gave others."""
    known = [payload.score for payload in job.payloads if formatting.is_time(payload.score)]
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
        case "queue" if job.is_blocked:
            yield Event(job.at, "blocked")
        case "queue":
            yield Event(
                job.at,
                "due"
                if job.retry_count < 0
                else f"due again, after {formatting.plural(job.retry_count + 1, 'failure')}",
            )
        case "claim":
            yield Event(job.at, "due, and claimed since")
            if running is not None:
                yield Event(running.node.beat_at - running.thread.seconds, "started")
