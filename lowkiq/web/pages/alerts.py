"""Acknowledging alerts: the question, with until when and a note, and the deed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import BaseRoute

from lowkiq.admin.alerts.acknowledging import acknowledge
from lowkiq.admin.alerts.alert import Alert
from lowkiq.admin.pauses import MOST_WHY
from lowkiq.web.pages.live import LivePages, Visit, page

#: Seconds, as a field has them → for how long an alert is muted.
LENGTHS: Final[Mapping[str, str]] = {
    "": "for as long as it lasts", "3600": "for an hour", "28800": "for 8 hours", "86400": "for a day",
    "604800": "for a week",
}  # fmt: skip


def routes(pages: LivePages) -> list[BaseRoute]:
    """The question and the deed."""
    view = pages.view

    def alert_of(visit: Visit, key: str) -> Alert | None:
        return next((alert for alert in visit.snapshot.alerts if alert.key == key), None)

    def question(visit: Visit) -> Response:
        alert = alert_of(visit, visit.query.get("key", ""))
        if alert is None:
            return visit.go("/")  # it is over
        return page(view, visit.request, "acknowledge.html", alert=alert, lengths=LENGTHS, most=MOST_WHY)

    def deed(visit: Visit) -> Response:
        form, alert = visit.form, alert_of(visit, visit.form.get("key", ""))
        if (length := form.get("length", "")) not in LENGTHS:
            raise HTTPException(400, "There is no such length of time here.")
        if alert is not None:
            until = visit.snapshot.at + int(length) if length else None
            note = form.get("note", "").strip()[:MOST_WHY]
            acknowledge(view.backend.caller, view.backend.namespace, [alert], visit.who, until=until, note=note)
        return visit.go("/")

    return [pages.question("/alerts/acknowledge", question), pages.deed("/alerts/acknowledge", deed)]
