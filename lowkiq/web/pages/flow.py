"""Flow of a queue: the questions before it is paused and resumed, and the deeds."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from lowkiq.admin.pauses import MOST_WHY
from lowkiq.admin.words import printable
from lowkiq.web.pages.live import LivePages, page
from lowkiq.web.render.templating import link
from lowkiq.web.security.guard import form_of, who_of

#: Seconds for which a page waits for nodes: the next one shows who has not confirmed the pause.
WAIT = 2.0


def routes(pages: LivePages) -> list[BaseRoute]:
    """Questions and deeds."""
    view = pages.view

    async def question(request: Request) -> Response:
        return page(view, request, "pause.html", queue=await _queue(pages, request), resumes=False, most=MOST_WHY)

    async def ask_to_resume(request: Request) -> Response:
        return page(view, request, "pause.html", queue=await _queue(pages, request), resumes=True, most=MOST_WHY)

    async def pause(request: Request) -> Response:
        queue, reason, who = (
            await _queue(pages, request),
            form_of(request).get("reason", "")[:MOST_WHY],
            who_of(request),
        )
        await run_in_threadpool(lambda: view.backend.actions(queue).pause(reason, who=who, wait=WAIT))
        return RedirectResponse(link(request, f"/queues/{queue}"), 303)

    async def resume(request: Request) -> Response:
        queue, who = await _queue(pages, request), who_of(request)
        await run_in_threadpool(lambda: view.backend.actions(queue).resume(who=who))
        return RedirectResponse(link(request, f"/queues/{queue}"), 303)

    return [
        Route("/queues/{queue}/pause", question, methods=["GET"]),
        Route("/queues/{queue}/pause", pause, methods=["POST"]),
        Route("/queues/{queue}/resume", ask_to_resume, methods=["GET"]),
        Route("/queues/{queue}/resume", resume, methods=["POST"]),
    ]


async def _queue(pages: LivePages, request: Request) -> str:
    queue = str(request.path_params["queue"])
    if queue not in (await pages.view.snapshots.get()).queues:
        raise HTTPException(404, f"There is no queue {printable(queue, 100)}.")
    return queue
