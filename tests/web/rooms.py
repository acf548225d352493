"""Routes that tests add to the view, to see what reaches them and what becomes of what they raise."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import redis
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from lowkiq.web.security.access import CALLER, Caller
from lowkiq.web.security.guard import form_of, who_of


async def echo(request: Request) -> Response:
    """The request as it came through the guard."""
    body = await request.body()
    form = form_of(request).multi_items()
    return JSONResponse({"kind": request.scope[CALLER].kind, "size": len(body), "form": form})


async def who(request: Request) -> Response:
    """Who has asked, as it is kept of writes."""
    return JSONResponse(who_of(request))


async def fail(request: Request) -> Response:
    raise RuntimeError("<script>secret</script>")


async def fail_late(request: Request) -> Response:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"begun"
        raise redis.ConnectionError("gone")

    return StreamingResponse(chunks())


async def refuse(request: Request) -> Response:
    raise redis.ResponseError("MISCONF <b>no disk</b>")


def with_rooms(web: Starlette) -> Starlette:
    """The view, with these routes."""
    for path in ("/echo", "/api/v1/echo"):
        web.router.routes.append(Route(path, echo, methods=["GET", "POST"]))
    web.router.routes.append(Route("/who", who))
    for path, room in (("/fail", fail), ("/api/v1/fail", fail), ("/late", fail_late), ("/refuse", refuse)):
        web.router.routes.append(Route(path, room))
    return web


def token_of(web: Starlette, kind: str = "anyone") -> str:
    """The write token of a caller, as pages of the view show it."""
    guard: Any = web.build_middleware_stack()
    while not hasattr(guard, "_access"):
        guard = guard.app
    token: str = guard._access.write_token_of(Caller(kind))
    return token
