"""Reshard of a queue: the question for a number of shards, and the deed."""

from __future__ import annotations

from starlette.responses import Response
from starlette.routing import BaseRoute

from lowkiq.admin.words import printable
from lowkiq.errors import BeingResharded, SettingsError
from lowkiq.queue.keys import MOST_SHARDS
from lowkiq.web.pages.live import LivePages, Visit, page


def routes(pages: LivePages) -> list[BaseRoute]:
    """The question and the deed."""
    view = pages.view

    def ask(visit: Visit, error: str = "") -> Response:
        queue, snapshot, status = visit.queue(), visit.snapshot, 400 if error else 200
        return page(
            view, visit.request, "reshard.html", status_code=status, queue=queue, count=snapshot.shards_counts[queue],
            moving=snapshot.reshards.get(queue), most=MOST_SHARDS, error=error,
        )  # fmt: skip

    def reshard(visit: Visit) -> Response:
        number = visit.form.get("shards", "").strip()
        if not (number.isascii() and number.isdigit() and len(number) <= len(str(MOST_SHARDS))):
            return ask(visit, f"{printable(number, 40) or 'Nothing'} is no number of shards")
        try:
            view.backend.actions(visit.queue()).reshard(int(number), who=visit.who)
        except (SettingsError, BeingResharded) as error:
            return ask(visit, str(error))
        return visit.go(f"/queues/{visit.queue()}")

    return [pages.question("/queues/{queue}/reshard", ask), pages.deed("/queues/{queue}/reshard", reshard)]
