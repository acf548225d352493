"""Whether this process lives, and whether it can do its work: for probes, which need no credentials."""

from __future__ import annotations

from redis.exceptions import RedisError
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from lowkiq.web.view import View


def routes(view: View) -> list[BaseRoute]:
    """/healthz: the process answers. /readyz: so does Redis."""

    async def healthz(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(_: Request) -> Response:
        try:
            # The poll that all share: however often anybody asks, Redis is asked once a second.
            await view.snapshots.get()
        except RedisError:
            return PlainTextResponse("Redis does not answer\n", 503)
        return PlainTextResponse("ok\n")

    return [Route("/healthz", healthz), Route("/readyz", readyz)]
