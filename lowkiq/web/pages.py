"""Pages: the routes of everything that people read. What each page says is its own file's."""

from __future__ import annotations

from starlette.routing import BaseRoute

from lowkiq.web import actions_page, bulks_page, job_page, nodes_page, overview, queue_page
from lowkiq.web.live_pages import LivePages
from lowkiq.web.view import View


def routes(view: View) -> list[BaseRoute]:
    """All HTML pages but those of signing in."""
    pages = LivePages(view)
    rooms = (overview, nodes_page, queue_page, job_page, actions_page, bulks_page)
    return [route for room in rooms for route in room.routes(pages)]
