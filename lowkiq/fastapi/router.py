"""The web view as a router of FastAPI, which runs the dependencies of its routes; those of a mount it does not run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from lowkiq.app import Lowkiq
from lowkiq.errors import SettingsError, short
from lowkiq.fastapi.guard import READING
from lowkiq.web import create_app
from lowkiq.web.security.guard import replay

if TYPE_CHECKING:
    from fastapi import APIRouter


def view_router(
    app: Lowkiq, *, see: Sequence[Any], act: Sequence[Any] | None = None, payloads: bool = True
) -> APIRouter:
    """
    The web view as a router: `site.include_router(view_router(app, see=[Depends(staff)]), prefix="/ops/lowkiq")`.

    Args:
        see: dependencies of every request, `Depends(…)` or `Security(…)`. One that raises HTTPException refuses it.
        act: further ones of every request that changes something. None: nothing can be changed.
        payloads: False shows their sizes only.

    Raises:
        SettingsError: there is no dependency, so that anybody could see.
    """
    from fastapi import APIRouter  # noqa: PLC0415 (Starlette's users do without)

    for name, dependencies in (("see", see), ("act", act)):
        if not isinstance(dependencies, list | tuple) and (name == "see" or dependencies is not None):
            raise SettingsError(f"{name} is {short(dependencies)}, it must be a list: {name}=[Depends(…)]")
    if not see:
        raise SettingsError("see is empty, so anybody could see: see=[Depends(…)], or mount lowkiq.web.create_app")
    view = create_app(app, no_auth=True, read_only=act is None, payloads=payloads)

    async def page(request: Request) -> Response:
        return _Below(view, request)

    router = APIRouter(include_in_schema=False, default_response_class=Response)
    router.add_api_route("/{path:path}", page, methods=list(READING), dependencies=list(see))
    router.add_api_route(
        "/{path:path}", page, methods=["POST", "PUT", "PATCH", "DELETE"], dependencies=[*see, *(act or ())]
    )
    return router


class _Below(Response):
    """A response that the view gives, as if it were mounted at what comes before the rest of the path."""

    def __init__(self, view: ASGIApp, request: Request) -> None:
        super().__init__()
        self._view, self._request = view, request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        prefix = path[: len(path) - len(self._request.path_params["path"])].rstrip("/")
        if hasattr(self._request, "_body"):  # somebody has read it, as Sentry's integration does
            receive = replay(await self._request.body(), receive)
        await self._view({**scope, "root_path": prefix, "path_params": {}}, receive, send)
