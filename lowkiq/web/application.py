"""The web view put together: the routes of all rooms, and the middlewares around them."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.staticfiles import StaticFiles

from lowkiq import Lowkiq
from lowkiq.environment import Credentials
from lowkiq.web import health
from lowkiq.web.api import routes as api
from lowkiq.web.backend import Backend
from lowkiq.web.bulk_runner import BulkRunner
from lowkiq.web.pages import failures, sign_in
from lowkiq.web.pages import routes as pages
from lowkiq.web.pages.failures import Failures
from lowkiq.web.security.access import Access
from lowkiq.web.security.guard import Guard
from lowkiq.web.security.headers import Headers
from lowkiq.web.snapshot import Snapshots
from lowkiq.web.view import View

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
        token: opens the view, as LOWKIQ_WEB_TOKEN does, which is used when none of the three is given.
        user: with `password`, opens it as well; else LOWKIQ_WEB_USER and LOWKIQ_WEB_PASSWORD.
        no_auth: whoever reaches it may see and act, since your application decides who does. Without this and without
            credentials the view answers only to loopback.
        read_only: nothing can be changed.
        payloads: False shows their sizes only.

    Raises:
        SettingsError: the credentials are not whole, or too short.
    """
    access = Access(Credentials.find(os.environ, token, user, password), no_auth=no_auth)
    backend = Backend(app)
    view = View(app, backend, Snapshots(backend), BulkRunner(backend), access, read_only, payloads)

    async def answer(request: Request, error: Exception) -> Response:
        return failures.respond(view, request, failures.explain(view, request, error))

    web = Starlette(
        routes=_routes(view),
        middleware=[Middleware(Headers), Middleware(Failures, view), Middleware(Guard, view)],
        exception_handlers={HTTPException: answer},
    )
    # It would lead to an address made of the Host header and our scheme, which behind a proxy is not the browser's.
    web.router.redirect_slashes = False
    return web


def _routes(view: View) -> list[BaseRoute]:
    routes: list[BaseRoute] = [Route("/static/{file}", _static_file())]
    for room in (health, sign_in, pages, api):
        routes += room.routes(view)
    return routes


def _static_file() -> Callable[[Request], Awaitable[Response]]:
    # Not mounted: a mount's prefix would become ours, in the links of an error page.
    files = StaticFiles(directory=STATIC)

    async def static_file(request: Request) -> Response:
        return await files.get_response(request.path_params["file"], request.scope)

    return static_file
