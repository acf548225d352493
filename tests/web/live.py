"""Live: the operations of the API alone, with a poll quick enough for tests of events."""

from __future__ import annotations

from starlette.applications import Starlette

from lowkiq import Lowkiq
from lowkiq.environment import Credentials
from lowkiq.web.api import routes
from lowkiq.web.api.events import Streams
from lowkiq.web.backend import Backend
from lowkiq.web.bulk_runner import BulkRunner
from lowkiq.web.security.access import Access
from lowkiq.web.snapshot import Snapshots
from lowkiq.web.view import View

#: Seconds between looks at Redis.
INTERVAL = 0.02


def web_of(app: Lowkiq, streams: Streams | None = None) -> Starlette:
    """The operations alone, with a quick poll."""
    backend = Backend(app)
    access = Access(Credentials(), no_auth=True)
    view = View(app, backend, Snapshots(backend, INTERVAL), BulkRunner(backend), access, read_only=False, payloads=True)
    return Starlette(routes=[operation.route(view) for operation in routes.operations(streams or Streams())])
