"""Job: one id wherever it is, with its payloads, why it waits, its error, and what can be done about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from lowkiq.admin.actions import actions_of
from lowkiq.admin.reader import JobPreview
from lowkiq.web.owners import Owners
from lowkiq.web.pages.action_words import WORDINGS, result_of
from lowkiq.web.pages.explain import Why
from lowkiq.web.pages.job_rows import failures, first_line
from lowkiq.web.pages.live import LivePages, Look
from lowkiq.web.pages.queue import max_retry_count
from lowkiq.web.pages.timeline import Event, timeline_of
from lowkiq.web.render import words
from lowkiq.web.render.payloads import PayloadText, payload_texts
from lowkiq.web.view import View

#: Where → what the heading says, which view lists it, and the form that its buttons send.
PLACES: Final = {"queue": "Queued", "claim": "In flight", "morgue": "In the morgue"}
VIEWS: Final = {"queue": "due", "claim": "in_flight", "morgue": "morgue"}


@dataclass(frozen=True)
class Place:
    """An id in one of the places that it can be in."""

    job: JobPreview
    title: str
    view: str
    why: str
    failures: int
    error_line: str
    payloads: Sequence[PayloadText]
    buttons: Sequence[str]

    @property
    def left_out(self) -> int:
        """Payloads that are not shown."""
        return self.job.payload_count - len(self.payloads)


def routes(pages: LivePages) -> list[BaseRoute]:
    """The page of a job."""
    view = pages.view

    async def job(request: Request) -> Response:
        return await pages.answer(request, "job.html", lambda look: _build(view, look))

    return [Route("/queues/{queue}/job", job, name="job")]


def _build(view: View, look: Look) -> Mapping[str, Any]:
    queue, id = look.queue(), look.query.get("id", "")
    if not id:
        raise HTTPException(404, "There is no job without an id.")
    owners = Owners(look.snapshot)
    places, ahead = _find(view, queue, id) if look.reads else ([], None)
    why = Why(owners, queue, places, ahead, look.snapshot.at)
    return {
        "queue": queue,
        "id": id,
        "places": [_place(view, job, why) for job in places],
        "timeline": _timeline(owners, queue, places),
        "owner": _owner(owners, queue, places),
        "max_retry_count": max_retry_count(view, queue),
        "shows_payloads": view.payloads,
        "wordings": WORDINGS,
        "result": result_of(look.query),
    }


def _find(view: View, queue: str, id: str) -> tuple[list[JobPreview], int | None]:
    previews = view.backend.previews(queue)
    try:
        places = previews.job(id)
        ahead = previews.ahead(id) if any(job.where == "queue" for job in places) else None
    except ValueError:  # too long, or no text: nothing has such an id
        return [], None
    return places, ahead


def _place(view: View, job: JobPreview, why: Why) -> Place:
    return Place(
        job=job,
        title=PLACES[job.where],
        view=VIEWS[job.where],
        why=why(job),
        failures=failures(job),
        error_line=words.printable(first_line(job.error), 200),
        payloads=payload_texts(job, view.app.settings.load_payload) if view.payloads else payload_texts(job, None),
        buttons=() if view.read_only else actions_of(VIEWS[job.where]),
    )


def _owner(owners: Owners, queue: str, places: Sequence[JobPreview]) -> dict[str, Any] | None:
    """Who has the id's shard."""
    shard = owners.shard(queue, places[0].shard) if places else None
    if shard is None:
        return None
    return {
        "name": owners.name(shard.owner),
        "epoch": shard.epoch,
        "shard": shard.shard,
        "is_held": bool(shard.lease_rest),
    }


def _timeline(owners: Owners, queue: str, places: Sequence[JobPreview]) -> list[Event]:
    running = owners.running(queue, places[0].shard) if places else None
    return timeline_of(places, running)
