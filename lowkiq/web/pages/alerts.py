"""Acknowledging alerts: the question, with until when and a note, and the deed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from lowkiq.admin.alerts.acknowledging import acknowledge
from lowkiq.admin.alerts.alert import Alert
from lowkiq.admin.pauses import MOST_WHY
from lowkiq.web.pages.live import LivePages, page
from lowkiq.web.render.templating import link, query_of
from lowkiq.web.security.guard import READ_ONLY, form_of, who_of

#: Seconds, as a field has them → for how long an alert is muted.
LENGTHS: Final[Mapping[str, str]] = {
    "": "for as long as it lasts", "3600": "for an hour", "28800": "for 8 hours", "86400": "for a day",
    "604800": "for a week",
}  # fmt: skip


def routes(pages: LivePages) -> list[BaseRoute]:
    """The question and the deed."""
    view = pages.view

    async def alert_of(key: str) -> Alert | None:
        return next((alert for alert in (await view.snapshots.get()).alerts if alert.key == key), None)

    async def question(request: Request) -> Response:
        if view.read_only:
            raise HTTPException(403, READ_ONLY)
        alert = await alert_of(query_of(request).get("key", ""))
        if alert is None:
            return RedirectResponse(link(request, "/"), 303)  # it is over
        return page(view, request, "acknowledge.html", alert=alert, lengths=LENGTHS, most=MOST_WHY)

    async def deed(request: Request) -> Response:
        form, alert = form_of(request), await alert_of(form_of(request).get("key", ""))
        if (length := form.get("length", "")) not in LENGTHS:
            raise HTTPException(400, "There is no such length of time here.")
        if alert is not None:
            until = (await view.snapshots.get()).at + int(length) if length else None
            caller, namespace, note = view.backend.caller, view.backend.namespace, form.get("note", "").strip()
            await run_in_threadpool(
                lambda: acknowledge(caller, namespace, [alert], who_of(request), until=until, note=note[:MOST_WHY])
            )
        return RedirectResponse(link(request, "/"), 303)

    return [
        Route("/alerts/acknowledge", question, methods=["GET"]),
        Route("/alerts/acknowledge", deed, methods=["POST"]),
    ]
