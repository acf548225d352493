"""Search page: jobs by their ids over all queues. An exact id that is in one queue only opens its job at once."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from lowkiq.admin.jobs.finder import LONGEST
from lowkiq.admin.jobs.search import is_glob
from lowkiq.web.pages.live import page
from lowkiq.web.render.templating import link, query_of
from lowkiq.web.view import View


def routes(view: View) -> list[BaseRoute]:
    """The route of the page."""

    async def search(request: Request) -> Response:
        snapshot = await view.snapshots.get()
        return await run_in_threadpool(_answer, view, request, snapshot.at, len(snapshot.queues))

    return [Route("/search", search)]


def _answer(view: View, request: Request, now: float, queues: int) -> Response:
    query = query_of(request)
    text, cursor = query.get("q", "").strip(), query.get("cursor") or None
    found = view.backend.finder().find(text, cursor) if text else None
    places, is_pattern = found.jobs if found else [], is_glob(text)
    if not is_pattern and len({one.queue for one in places}) == 1:
        return RedirectResponse(link(request, f"/queues/{places[0].queue}/job", id=places[0].job.id), 303)
    return page(
        view, request, "search.html",
        q=text, rows=places, is_pattern=is_pattern, queues=queues, now=now, beginning=f"{text[:LONGEST - 1]}*",
        next=found.next if found else None, scanned=found.scanned if found else None,
    )  # fmt: skip
