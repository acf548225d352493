"""Pages: the routes of everything that people read. What each page says is its own file's."""

from __future__ import annotations

from starlette.routing import BaseRoute

from lowkiq.web.pages import actions, bulks, job, nodes, overview, queue
from lowkiq.web.pages.live import LivePages
from lowkiq.web.view import View


def routes(view: View) -> list[BaseRoute]:
    """All HTML pages but those of signing in."""
    pages = LivePages(view)
    rooms = (overview, nodes, queue, job, actions, bulks)
    return [route for room in rooms for route in room.routes(pages)]
