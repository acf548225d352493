"""Reshard of a queue: the question for a number of shards, and the deed."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from lowkiq.admin.words import printable
from lowkiq.errors import BeingResharded, SettingsError
from lowkiq.queue.keys import MOST_SHARDS
from lowkiq.web.pages.live import LivePages, page
from lowkiq.web.render.templating import link
from lowkiq.web.security.guard import READ_ONLY, form_of, who_of


def routes(pages: LivePages) -> list[BaseRoute]:
    """The question and the deed."""
    view = pages.view

    async def question(request: Request) -> Response:
        if view.read_only:
            raise HTTPException(403, READ_ONLY)
        return await _ask(pages, request)

    async def reshard(request: Request) -> Response:
        queue, who = await pages.queue_of(request), who_of(request)
        number = form_of(request).get("shards", "").strip()
        if not (number.isascii() and number.isdigit() and len(number) <= len(str(MOST_SHARDS))):
            return await _ask(pages, request, f"{printable(number, 40) or 'Nothing'} is no number of shards")
        try:
            await run_in_threadpool(lambda: view.backend.actions(queue).reshard(int(number), who=who))
        except (SettingsError, BeingResharded) as error:
            return await _ask(pages, request, str(error))
        return RedirectResponse(link(request, f"/queues/{queue}"), 303)

    return [
        Route("/queues/{queue}/reshard", question, methods=["GET"]),
        Route("/queues/{queue}/reshard", reshard, methods=["POST"]),
    ]


async def _ask(pages: LivePages, request: Request, error: str = "") -> Response:
    queue, snapshot = await pages.queue_of(request), await pages.view.snapshots.get()
    told = page(
        pages.view, request, "reshard.html", queue=queue, count=snapshot.shards_counts[queue],
        moving=snapshot.reshards.get(queue), most=MOST_SHARDS, error=error,
    )  # fmt: skip
    told.status_code = 400 if error else 200
    return told
