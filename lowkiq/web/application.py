"""The web view as an application: the routes of pages, API and probes, and the middleware around them."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from redis.exceptions import RedisError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.staticfiles import StaticFiles

from lowkiq import Lowkiq
from lowkiq.environment import Credentials
from lowkiq.log import get_logger
from lowkiq.web.api import routes as api
from lowkiq.web.backend import Backend
from lowkiq.web.bulk_runner import BulkRunner
from lowkiq.web.pages import (
    actions,
    alerts,
    bulks,
    failures,
    flow,
    glossary,
    hands,
    incidents,
    job,
    nodes,
    overview,
    queue,
    recurring,
    search,
    sign_in,
)
from lowkiq.web.pages.failures import ErrorResponses
from lowkiq.web.pages.live import LivePages
from lowkiq.web.security.access import Access
from lowkiq.web.security.guard import Guard
from lowkiq.web.security.guesses import Guesses
from lowkiq.web.security.paths import SIGN_IN, Headers
from lowkiq.web.security.proxies import Proxies
from lowkiq.web.snapshot import Snapshots
from lowkiq.web.view import View

logger = get_logger()

STATIC: Final = Path(__file__).parent / "static"


def create_app(
    app: Lowkiq,
    *,
    token: str | None = None,
    user: str | None = None,
    password: str | None = None,
    no_auth: bool = False,
    read_only: bool = False,
    payloads: bool = True,
) -> Starlette:
    """
    The web view as an ASGI application, to be mounted under any prefix. It needs no lifespan.

    Args:
        token: opens the view; without any of the three, LOWKIQ_WEB_TOKEN does.
        user: with `password`, opens it as well; else LOWKIQ_WEB_USER and LOWKIQ_WEB_PASSWORD.
        no_auth: whoever reaches it may see and act, since your application decides who does. Without this and without
            credentials the view makes up a token, which the log shows, and answers only to loopback.
        read_only: nothing can be changed.
        payloads: False shows their sizes only.

    Raises:
        SettingsError: the credentials are not whole, or too short.
    """
    access = Access(Credentials.find(os.environ, token, user, password), no_auth=no_auth, shared=shared_text(app))
    if access.is_made:
        advice = "open it below the address and prefix where you mount it; or set LOWKIQ_WEB_TOKEN"
        logger.warning("web_link", path=f"{SIGN_IN}?token={access.credentials.token}", advice=advice)
    return make_web(app, access, read_only=read_only, payloads=payloads)


def shared_text(app: Lowkiq) -> str:
    """Text that all processes of one view have in common."""
    return f"{app.settings.redis_url} {app.settings.namespace}"


def make_web(
    app: Lowkiq, access: Access, *, read_only: bool, payloads: bool, proxies: Proxies | None = None
) -> Starlette:
    """The view with these rules of access, behind these proxies."""
    backend, guesses = Backend(app), Guesses()
    view = View(app, backend, Snapshots(backend), BulkRunner(backend), access, guesses, read_only, payloads)

    async def answer(request: Request, error: Exception) -> Response:
        return failures.respond(view, request, failures.explain(view, request, error))

    web = Starlette(
        routes=_routes(view),
        middleware=[
            Middleware(Headers),
            Middleware(ErrorResponses, view),
            Middleware(
                Guard, access, guesses, backend.ended_sessions, read_only=read_only, proxies=proxies or Proxies()
            ),
        ],
        exception_handlers={HTTPException: answer},
    )
    # A redirect would be made of the Host header and our scheme, which behind a proxy is not the browser's.
    web.router.redirect_slashes = False
    return web


def _routes(view: View) -> list[BaseRoute]:
    pages = LivePages(view)
    return [
        Route("/static/{file}", _static_file()),
        *_probes(view.snapshots),
        pages.route("/", "overview.html", overview.build),
        pages.route("/nodes", "nodes.html", nodes.build),
        pages.route("/queues/{queue}", "queue.html", queue.build),
        pages.route("/queues/{queue}/job", "job.html", job.build),
        pages.route("/help", "help.html", glossary.build),
        *actions.routes(pages),
        *alerts.routes(pages),
        pages.route("/search", "search.html", search.build),
        pages.route("/incidents", "incidents.html", incidents.build),
        *flow.routes(pages),
        *recurring.routes(pages),
        *hands.routes(pages),
        pages.route("/bulks", "bulks.html", bulks.build_list),
        pages.route("/bulks/{id}", "bulk.html", bulks.build_one),
        bulks.stop(view),
        *sign_in.routes(view),
        *api.routes(view),
    ]


def _static_file() -> Callable[[Request], Awaitable[Response]]:
    # Not mounted: a mount's prefix would become ours, in the links of an error page.
    files = StaticFiles(directory=STATIC)

    async def static_file(request: Request) -> Response:
        return await files.get_response(request.path_params["file"], request.scope)

    return static_file


def _probes(snapshots: Snapshots) -> list[BaseRoute]:
    """/healthz: the process answers. /readyz: so does Redis. Neither needs credentials."""

    async def healthz(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(_: Request) -> Response:
        try:
            # The poll that all share: however often anybody asks, Redis is asked once a second.
            await snapshots.get()
        except RedisError:
            return PlainTextResponse("Redis does not answer\n", 503)
        return PlainTextResponse("ok\n")

    return [Route("/healthz", healthz), Route("/readyz", readyz)]
