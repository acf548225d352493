"""Page of a job: its id wherever it is, with payloads, error, why it waits, and what can be done about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from starlette.exceptions import HTTPException

from lowkiq.admin.beats.health import NodeHealth, Running, batch_of
from lowkiq.admin.jobs.actions import actions_of
from lowkiq.admin.jobs.reader import JobPreview
from lowkiq.admin.jobs.tracking import Transition
from lowkiq.admin.jobs.undo import KEPT_SECONDS
from lowkiq.admin.metrics import ShardMetrics
from lowkiq.admin.pauses import Hold, by_whom
from lowkiq.admin.words import age, listed, times
from lowkiq.failure import main_line
from lowkiq.web.pages.action_words import HARMLESS, WORDINGS, result_of, undo_of
from lowkiq.web.pages.live import Visit
from lowkiq.web.pages.queue import is_async, max_retry_count, when_exhausted
from lowkiq.web.render import formatting
from lowkiq.web.render.payloads import PayloadText, payload_texts
from lowkiq.web.snapshot import Snapshot
from lowkiq.web.view import View

#: Pushes that the timeline lists one by one, and batches of a shard that a sentence names.
PUSHES, NAMED = 5, 3
#: States of a node in which it claims nothing, as a sentence has them.
STOPPED: Final = {"quiet": "quiet", "draining": "stopping", "retiring": "stopping"}
#: Where → what the heading says, and the view whose form its buttons send.
PLACES: Final = {"queue": "Queued", "claim": "Running", "morgue": "In the morgue"}
VIEWS: Final = {"queue": "due", "claim": "due", "morgue": "morgue"}


@dataclass(frozen=True)
class Section:
    """A section of the page: the id in one of the places that it can be in."""

    job: JobPreview
    title: str
    view: str
    why: str
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
    places, ahead = _find(view, queue, id) if visit.reads else ([], None)
    hold = _hold(view, queue, id) if visit.reads else None
    is_tracked, transitions = _history(view, queue, id) if visit.reads else (False, [])
    snapshot = visit.snapshot
    # An id has one shard, wherever it is.
    number = places[0].shard if places else 0
    shard, batches = snapshot.shard(queue, number), snapshot.running(queue, number)
    batch = batch_of(id, batches)
    running = batch if batch and batch.has(id) else None
    why = Why(snapshot, shard, batches, ahead or 0, is_async=is_async(view, queue))
    return {
        "queue": queue,
        "id": id,
        "places": [_place(view, job, why, running) for job in places],
        "hold": hold,
        "held_by": by_whom(hold) if hold else "",
        "timeline": _timeline(places, running),
        "shard": shard,
        "is_tracked": is_tracked,
        "transitions": transitions,
        "max_retry_count": max_retry_count(view, visit, queue),
        "when_exhausted": when_exhausted(view, visit, queue),
        "shows_payloads": view.payloads,
        "wordings": WORDINGS,
        "harmless": HARMLESS,
        "result": result_of(visit.query),
        "undo": undo_of(visit.query),
        "undo_seconds": KEPT_SECONDS,
    }


def _find(view: View, queue: str, id: str) -> tuple[list[JobPreview], int | None]:
    previews = view.backend.previews(queue)
    try:
        places = previews.job(id)
        ahead = previews.ahead(id) if any(job.where == "queue" for job in places) else None
    except ValueError:  # too long, or no text: nothing has such an id
        return [], None
    return places, ahead


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


def _place(view: View, job: JobPreview, why: Why, running: Running | None) -> Section:
    return Section(
        job=job,
        title="Blocked" if job.is_blocked else PLACES[job.where],
        view=(on := "blocked" if job.is_blocked else VIEWS[job.where]),
        why=why(job),
        payloads=payload_texts(job, view.app.settings.load_payload if view.payloads else None),
        buttons=() if view.read_only else ("cancel",) if job.where == "claim" else actions_of(on),
        running=running if job.where == "claim" else None,
    )


def _timeline(places: Sequence[JobPreview], running: Running | None) -> list[Event]:
    """Events, the earliest first. Lowkiq keeps no log: what left no trace in Redis is missing."""
    # Where payloads are in several places, it matters which were pushed when.
    suffixes = [f" ({PLACES[job.where].lower()})" if len(places) > 1 else "" for job in places]
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
                yield Event(running.node.beat_at - running.thread.seconds, "its performing began")


@dataclass(frozen=True)
class Why:
    """Explains in one sentence where an id is, and why it waits there."""

    snapshot: Snapshot
    #: The id's shard, if anything is known of it, and what is performed of that.
    shard: ShardMetrics | None
    batches: Sequence[Running]
    #: Queued jobs of its shard that come before it.
    ahead: int
    #: Its worker's jobs run as tasks, and need no thread.
    is_async: bool

    @property
    def _owner(self) -> str:
        return self.snapshot.owner_name(self.shard.owner if self.shard else None)

    def __call__(self, job: JobPreview) -> str:
        """The sentence."""
        match job.where:
            case "claim":
                return self._in_flight(job)
            case "morgue":
                return f"In the morgue since {formatting.moment(job.at)}: nothing runs it until somebody revives it."
        if job.is_blocked:
            return (
                f"Blocked since {formatting.moment(job.at)}: it has failed too often, and nothing of its id runs until "
                "somebody retries it, skips its oldest payload, or deletes it."
            )
        if job.at > self.snapshot.at:
            return self._not_due(job)
        return self._behind(job) if job.waits_for_own_run else self._due()

    def _behind(self, job: JobPreview) -> str:
        running = batch_of(job.id, self.batches)
        how_long = f", for {age(running.seconds)} so far" if running and running.has(job.id) else ""
        its_run = f"its id runs{how_long}"
        return f"Waits for its own run: {its_run}; what is queued here follows when that is done."

    def _not_due(self, job: JobPreview) -> str:
        when = f"Not due until {formatting.moment(job.at)}, in {age(job.at - self.snapshot.at)}"
        if job.retry_count < 0:
            return f"{when}: it was pushed for then."
        return f"{when}: it failed {times(job.retry_count + 1)} and tries again then."

    def _due(self) -> str:
        shard = self.shard
        if shard is None:
            return "Due; nothing is known of its shard yet."
        if shard.owner is None:
            return f"Due, but shard {shard.shard} has no node: none has had it so far."
        if not shard.lease_rest:
            gone = f"the lease of the last one, {self._owner}, has run out"
            return f"Due, but shard {shard.shard} has no node: {gone}."
        node = self.snapshot.node(shard.owner)
        if node is not None and (obstacle := _obstacle(node)):
            return f"Due, but {self._owner}, which has shard {shard.shard}, {obstacle}."
        return f"Due; {self._before()} in shard {shard.shard}{self._at_work(node)}."

    def _before(self) -> str:
        if not self.ahead:
            return "it is the first"
        return f"{formatting.plural(self.ahead, 'job')} {'is' if self.ahead == 1 else 'are'} before it"

    def _at_work(self, node: NodeHealth | None) -> str:
        if self.batches:
            return f", which has been at {_performed_of(self.batches)}"
        if not self.is_async and node and node.threads and all(thread.queue is not None for thread in node.threads):
            return f", and all threads of {self._owner} are busy with other shards"
        return f" of {self._owner}"

    def _in_flight(self, job: JobPreview) -> str:
        running = batch_of(job.id, self.batches)
        if self.shard is not None and not self.shard.lease_rest:
            next_node = f"the next node of shard {job.shard} runs it again"
            return f"In the hands of {self._owner}, whose lease has run out: {next_node}."
        if not self.batches:
            return f"Claimed by {self._owner}: about to be performed, or just done."
        if running is None:
            return f"Claimed by {self._owner}, and next: its shard has been at {_performed_of(self.batches)}."
        who = f"{self.snapshot.owner_name(running.node.node)}, {running.place}"
        if running.has(job.id):
            return f"Performed by {who}, for {age(running.seconds)} so far."
        return f"Claimed by {who}: performed in the batch of {_performed(running)}, or next."


def _obstacle(node: NodeHealth) -> str | None:
    if node.is_late:
        return f"has not been heard of for {age(node.beat_age)}"
    if node.state in STOPPED:
        return f"is {STOPPED[node.state]}: it takes no new jobs"
    return None


def _performed_of(batches: Sequence[Running]) -> str:
    """What is performed of a shard, the longest first."""
    named, rest = [_performed(batch) for batch in batches[:NAMED]], len(batches) - NAMED
    return listed([*named, *([f"{rest:,} more"] if rest > 0 else [])])


def _performed(running: Running) -> str:
    return f"{running.jobs} for {age(running.seconds)}"
