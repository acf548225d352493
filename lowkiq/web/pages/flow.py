"""Flow of a queue: the questions before it is paused and resumed, its live settings, its reshard, and the deeds."""

from __future__ import annotations

from starlette.responses import Response
from starlette.routing import BaseRoute

from lowkiq.admin.live import set_live
from lowkiq.admin.pauses import MOST_WHY
from lowkiq.admin.words import printable
from lowkiq.errors import BeingResharded, SettingsError
from lowkiq.options import SETTABLE, parse_live
from lowkiq.queue.keys import MOST_SHARDS
from lowkiq.web.live_options import options_of
from lowkiq.web.pages.live import LivePages, Visit, page

#: Seconds for which a page waits for nodes: the next one shows who has not confirmed the pause.
WAIT = 2.0


def routes(pages: LivePages) -> list[BaseRoute]:
    """Questions and deeds."""
    view = pages.view

    def question(visit: Visit) -> Response:
        resumes = visit.request.url.path.endswith("/resume")
        return page(view, visit.request, "pause.html", queue=visit.queue(), resumes=resumes, most=MOST_WHY)

    def pause(visit: Visit) -> Response:
        reason = visit.form.get("reason", "")[:MOST_WHY]
        view.backend.actions(visit.queue()).pause(reason, who=visit.who, wait=WAIT)
        return visit.go(f"/queues/{visit.queue()}")

    def resume(visit: Visit) -> Response:
        view.backend.actions(visit.queue()).resume(who=visit.who)
        return visit.go(f"/queues/{visit.queue()}")

    def show(visit: Visit, error: str = "") -> Response:
        queue, status = visit.queue(), 400 if error else 200
        return page(
            view, visit.request, "settings.html", status_code=status, queue=queue, options=options_of(view, queue),
            explained=SETTABLE, error=error, now=visit.snapshot.at,
        )  # fmt: skip

    def change(visit: Visit) -> Response:
        queue, form, backend = visit.queue(), visit.form, view.backend
        name, value = form.get("name", ""), form.get("value", "").strip()
        try:
            if form.get("unset") == "1":
                backend.actions(queue).unset(name, who=visit.who)
            else:
                set_live(backend.caller, backend.namespace, queue, dict([parse_live(f"{name}={value}")]), visit.who)
        except SettingsError as error:
            return show(visit, str(error))
        return visit.go(f"/queues/{queue}/settings")

    return [
        pages.deed("/queues/{queue}/settings", show, "GET"),
        pages.deed("/queues/{queue}/settings", change),
        pages.question("/queues/{queue}/pause", question),
        pages.deed("/queues/{queue}/pause", pause),
        pages.question("/queues/{queue}/resume", question),
        pages.deed("/queues/{queue}/resume", resume),
        *_reshard_routes(pages),
    ]


def _reshard_routes(pages: LivePages) -> list[BaseRoute]:
    view = pages.view

    def ask_shards(visit: Visit, error: str = "") -> Response:
        queue, snapshot, status = visit.queue(), visit.snapshot, 400 if error else 200
        return page(
            view, visit.request, "reshard.html", status_code=status, queue=queue, count=snapshot.shards_counts[queue],
            moving=snapshot.reshards.get(queue), most=MOST_SHARDS, error=error,
        )  # fmt: skip

    def reshard(visit: Visit) -> Response:
        number = visit.form.get("shards", "").strip()
        if not (number.isascii() and number.isdigit() and len(number) <= len(str(MOST_SHARDS))):
            return ask_shards(visit, f"{printable(number, 40) or 'Nothing'} is no number of shards")
        try:
            view.backend.actions(visit.queue()).reshard(int(number), who=visit.who)
        except (SettingsError, BeingResharded) as error:
            return ask_shards(visit, str(error))
        return visit.go(f"/queues/{visit.queue()}")

    return [
        pages.question("/queues/{queue}/reshard", ask_shards),
        pages.deed("/queues/{queue}/reshard", reshard),
    ]
