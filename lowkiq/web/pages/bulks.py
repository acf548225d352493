"""Pages of bulks: actions on all that match, how far they have come, and the button that stops one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from lowkiq.admin.jobs.bulks import ask_to_stop, read_bulk, read_bulks
from lowkiq.admin.jobs.deeds import DEEDS
from lowkiq.web.pages.actions import jobs_of
from lowkiq.web.pages.live import Visit
from lowkiq.web.render.templating import link
from lowkiq.web.view import View

#: State → how it looks.
KINDS = {"running": "good", "stopping": "warn", "stopped": "warn", "failed": "bad", "interrupted": "bad"}
#: State → what it means, where the word does not say.
EXPLAINED = {
    "stopping": "It ends after the step that it is at.",
    "stopped": "Somebody stopped it. What it had done by then stays done; it can be started again.",
    "interrupted": "Its process is gone. What it had done by then stays done; it can be started again.",
}


def build_list(view: View, visit: Visit) -> Mapping[str, Any]:
    return _words() | {"bulks": read_bulks(view.backend.caller, view.backend.namespace) if visit.reads else []}


def build_one(view: View, visit: Visit) -> Mapping[str, Any]:
    """The page of one bulk."""
    bulk = read_bulk(view.backend.caller, view.backend.namespace, str(visit.request.path_params["id"]))
    if bulk is None:
        raise HTTPException(404, "There is no such bulk action. They are kept for a day.")
    return _words() | {"bulk": bulk}


def stop(view: View) -> Route:
    """The route of the button that stops a bulk."""

    def stop(request: Request) -> Response:
        id = str(request.path_params["id"])
        ask_to_stop(view.backend.caller, view.backend.namespace, id)
        return RedirectResponse(link(request, f"/bulks/{id}"), 303)

    return Route("/bulks/{id}/stop", stop, methods=["POST"])


def _words() -> dict[str, Any]:
    return {"deeds": DEEDS, "jobs_of": jobs_of, "kinds": KINDS, "explained": EXPLAINED}
