"""Flow of a queue: the questions before it is paused and resumed, its live settings, and the deeds."""

from __future__ import annotations

from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from lowkiq.admin.live import set_live
from lowkiq.admin.options import parse_live
from lowkiq.admin.pauses import MOST_WHY
from lowkiq.errors import SettingsError
from lowkiq.web.live_options import options_of
from lowkiq.web.pages.live import LivePages, page
from lowkiq.web.render.templating import link
from lowkiq.web.security.guard import READ_ONLY, form_of, who_of
from lowkiq.web.view import View

#: What an option does, in a line.
EXPLAINED: Final = {
    "concurrency": "Batches of one shard that run at a time: 1 to 1,000, or none for as many as threads are free.",
    "max_running": "Batches of the queue that run at a time on all nodes: 1 to 10,000, or none for any number.",
    "batch_size": "Ids that one perform gets at most: 1 to 1,000.",
    "max_retry_count": "Retries of a job, also where its worker's retry has limits of its own: 0 to 1,000,000.",
    "when_exhausted": "After the last try: bury, block or discard.",
    "perform_timeout": "Seconds that a batch may take, or none.",
    "rate": "Jobs that may start in so many seconds, such as 100/60, or none. By key, if the code says so.",
    "weight": "Its share of a node's threads beside other queues, 1 where none is set: 1 to 1,000, or none.",
    "alert_lag": "Seconds by which its jobs may be late without an alert; 0: any.",
    "alert_failing": "Share of its tries that may fail without an alert, 0.5 for half; 0: any.",
    "alert_morgue": "Jobs of it that may die within an hour without an alert, less one; 0: any number.",
    "alert_long": "Times as long as 99 of 100 take that a job of it may run without an alert; 0: any.",
    "log_level": "The lowest level that nodes of the queue log: debug, info, warning or error.",
}
#: Seconds for which a page waits for nodes: the next one shows who has not confirmed the pause.
WAIT = 2.0


def routes(pages: LivePages) -> list[BaseRoute]:
    """Questions and deeds."""
    view = pages.view

    async def question(request: Request) -> Response:
        if view.read_only:
            raise HTTPException(403, READ_ONLY)
        resumes = request.url.path.endswith("/resume")
        return page(view, request, "pause.html", queue=await pages.queue_of(request), resumes=resumes, most=MOST_WHY)

    async def pause(request: Request) -> Response:
        queue, reason, who = (
            await pages.queue_of(request),
            form_of(request).get("reason", "")[:MOST_WHY],
            who_of(request),
        )
        await run_in_threadpool(lambda: view.backend.actions(queue).pause(reason, who=who, wait=WAIT))
        return RedirectResponse(link(request, f"/queues/{queue}"), 303)

    async def resume(request: Request) -> Response:
        queue, who = await pages.queue_of(request), who_of(request)
        await run_in_threadpool(lambda: view.backend.actions(queue).resume(who=who))
        return RedirectResponse(link(request, f"/queues/{queue}"), 303)

    async def show(request: Request) -> Response:
        return await _show(pages, request)

    async def change(request: Request) -> Response:
        queue, form, who = await pages.queue_of(request), form_of(request), who_of(request)
        name, value = form.get("name", ""), form.get("value", "").strip()
        try:
            if form.get("unset") == "1":
                await run_in_threadpool(lambda: view.backend.actions(queue).unset(name, who=who))
            else:
                await run_in_threadpool(_set, view, queue, f"{name}={value}", who)
        except SettingsError as error:
            return await _show(pages, request, str(error))
        return RedirectResponse(link(request, f"/queues/{queue}/settings"), 303)

    return [
        Route("/queues/{queue}/settings", show, methods=["GET"]),
        Route("/queues/{queue}/settings", change, methods=["POST"]),
        Route("/queues/{queue}/pause", question, methods=["GET"]),
        Route("/queues/{queue}/pause", pause, methods=["POST"]),
        Route("/queues/{queue}/resume", question, methods=["GET"]),
        Route("/queues/{queue}/resume", resume, methods=["POST"]),
    ]


def _set(view: View, queue: str, text: str, who: str) -> None:
    name, value = parse_live(text)
    set_live(view.backend.caller, view.backend.namespace, queue, {name: value}, who)


async def _show(pages: LivePages, request: Request, error: str = "") -> Response:
    queue = await pages.queue_of(request)
    options = await run_in_threadpool(options_of, pages.view, queue)
    now = (await pages.view.snapshots.get()).at
    told = page(
        pages.view, request, "settings.html", queue=queue, options=options, explained=EXPLAINED, error=error, now=now
    )
    told.status_code = 400 if error else 200
    return told
