"""
The web view behind a site's own rules: for a mount, behind a function of the request that tells who may see and who may
act; or as a router of FastAPI, which runs the dependencies of its routes, as it does not run those of a mount.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from lowkiq.app import Lowkiq
from lowkiq.errors import SettingsError, short
from lowkiq.hooks import is_async
from lowkiq.web import create_app
from lowkiq.web.security.guard import replay

if TYPE_CHECKING:
    from fastapi import APIRouter
import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Protocol

#: A lifespan as FastAPI and Starlette take it, with a state or without.
Lifespan: TypeAlias = (
    Callable[[Any], AbstractAsyncContextManager[None]] | Callable[[Any], AbstractAsyncContextManager[Mapping[str, Any]]]
)


class OnThread(Protocol):
    """A relay that runs on a thread."""

    def start(self) -> object: ...
    def stop(self) -> None: ...


def lifespan(
    app: Lowkiq, *relays: OnThread | AbstractAsyncContextManager[Any], own: Lifespan | None = None
) -> Callable[[Any], AbstractAsyncContextManager[Any]]:
    """
    A lifespan for `FastAPI(lifespan=…)` or `Starlette(lifespan=…)`. At the end it waits for pushes that are on their
    way, and closes the connections to Redis. At the start it does not wait for Redis, so that a site which needs it
    for nothing but pushes starts without it.

    Args:
        relays: of outboxes: they run while the site does.
        own: the site's own lifespan. It begins before the relays and ends after them, so that it can make tables and
            dispose of engines, and can push to its end. Its state is passed on.

    Raises:
        SettingsError: what should be a relay is none.
    """
    for relay in relays:
        if not isinstance(relay, AbstractAsyncContextManager) and not hasattr(relay, "start"):
            raise SettingsError(f"{short(relay)} is no relay: make one with outbox.relay(engine); own= is a lifespan")

    @asynccontextmanager
    async def whole(site: Any) -> AsyncIterator[Any]:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(app.aclose)
            state = await stack.enter_async_context(own(site)) if own else None
            for relay in relays:
                if isinstance(relay, AbstractAsyncContextManager):
                    await stack.enter_async_context(relay)
                else:
                    relay.start()
                    stack.push_async_callback(asyncio.to_thread, relay.stop)
            yield state

    return whole


#: Methods that change nothing.
READING: Final = ("GET", "HEAD", "OPTIONS")
#: Tells whether a request may go on: True or None; False for 403; or a response, such as a redirect to a sign-in page.
#: What it raises is the site's to handle. Starlette's @requires("admin") makes one of a function that returns None.
Rule: TypeAlias = Callable[[Request], bool | Response | Awaitable[bool | Response | None] | None]


def guarded_view(app: Lowkiq, *, see: Rule, act: Rule | None = None, payloads: bool = True) -> ASGIApp:
    """
    The web view, to be mounted: `site.mount("/ops/lowkiq", guarded_view(app, see=is_staff, act=is_admin))`.

    Args:
        see: asked of every request, plain (then on a thread) or async.
        act: asked as well of every request that changes something. None: nothing can be changed.
        payloads: False shows their sizes only.

    Raises:
        SettingsError: one of the rules can't be called.
    """
    for name, rule in (("see", see), ("act", act)):
        if not callable(rule) and (rule is not None or name == "see"):
            raise SettingsError(f"{name} is {short(rule)}, it must be a function of the request that allows it or not")
    view = create_app(app, no_auth=True, read_only=act is None, payloads=payloads)

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise HTTPException(403)
        request = Request(scope, receive)
        answer = await _refusal(see, request)
        if answer is None and act is not None and request.method not in READING:
            answer = await _refusal(act, request)
        await (answer or view)(scope, receive, send)

    return guarded


async def _refusal(rule: Rule, request: Request) -> Response | None:
    """The response in place of the view's, if the rule has one. Raises HTTPException where it says no."""
    told = rule(request) if is_async(rule) else await run_in_threadpool(rule, request)
    if inspect.isawaitable(told):
        told = await told
    if told is None or told is True:
        return None
    if isinstance(told, Response):
        return told
    raise HTTPException(403)


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
