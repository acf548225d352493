"""Page of recurring jobs: which there are, when each runs next, and what can be done about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from lowkiq.admin.pauses import MOST_WHY
from lowkiq.admin.words import printable
from lowkiq.errors import LowkiqError
from lowkiq.web.backend import RecurringAction
from lowkiq.web.pages.hands import Wording
from lowkiq.web.pages.live import LivePages, Visit, page
from lowkiq.web.render.templating import from_field, link, query_of
from lowkiq.web.security.guard import READ_ONLY, form_of, who_of
from lowkiq.web.view import View

#: Jobs that the page shows: those that run next.
SHOWN: Final = 200


WORDINGS: Final[Mapping[RecurringAction, Wording]] = {
    "pause": Wording("Pause", "It is not run until somebody resumes it; what is queued of it runs."),
    "resume": Wording("Resume", "It runs again, from its next time on. What was due meanwhile is not made up for."),
    "run_now": Wording("Run now", "It is pushed once more, now. Its times stay as they are."),
    "remove": Wording(
        "Remove",
        "It recurs no more; what is queued of it runs. One that the code declares comes back when a node starts: pause "
        "it instead.",
    ),
}


def routes(pages: LivePages) -> list[BaseRoute]:
    """The page, the questions and the deeds."""
    view = pages.view

    async def question(request: Request) -> Response:
        if view.read_only:
            raise HTTPException(403, READ_ONLY)
        query = query_of(request)
        return await _ask(pages, request, _action(query.get("action", "")), from_field(query.get("id", "")))

    async def deed(request: Request) -> Response:
        queue, form, who = await pages.queue_of(request), form_of(request), who_of(request)
        action, id = _action(form.get("action", "")), from_field(form.get("id", ""))
        why = form.get("reason", "")[:MOST_WHY]
        try:
            await run_in_threadpool(view.backend.act_on_recurring, queue, id, action, who, why)
        except (LowkiqError, ValueError) as error:
            return await _ask(pages, request, action, id, str(error))
        return RedirectResponse(link(request, "/recurring"), 303)

    return [
        pages.route("/recurring", "recurring.html", build),
        Route("/queues/{queue}/recurring", question, methods=["GET"]),
        Route("/queues/{queue}/recurring", deed, methods=["POST"]),
    ]


def build(view: View, visit: Visit) -> Mapping[str, Any]:
    """Those that run next."""
    queue = visit.query.get("queue") or None
    if queue is not None and queue not in visit.snapshot.queues:
        raise HTTPException(404, f"There is no queue {printable(queue, 100)}.")
    jobs, count = view.backend.recurring(queue, SHOWN) if visit.reads else ([], 0)
    return {"queue": queue, "jobs": jobs, "count": count, "shown": SHOWN}


async def _ask(pages: LivePages, request: Request, action: RecurringAction, id: str, error: str = "") -> Response:
    told = page(
        pages.view, request, "recurring_question.html", queue=await pages.queue_of(request), id=id, action=action,
        wording=WORDINGS[action], most=MOST_WHY, error=error,
    )  # fmt: skip
    told.status_code = 400 if error else 200
    return told


def _action(text: str) -> RecurringAction:
    if text not in WORDINGS:
        raise HTTPException(400, "There is no such action here.")
    return cast("RecurringAction", text)
