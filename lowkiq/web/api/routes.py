"""The API's operations, in the order of the OpenAPI document, and the routes made from them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import msgspec
from starlette.responses import Response
from starlette.routing import BaseRoute

from lowkiq.web.api import (
    actions,
    events,
    flow,
    jobs,
    monitoring,
    openapi,
    past,
    prometheus,
    recurring,
)
from lowkiq.web.api.operation import JSON, ApiCall, Operation, operation
from lowkiq.web.api.replies import TokenReply
from lowkiq.web.security.paths import prefix_of
from lowkiq.web.view import View


@operation(
    "GET",
    "/api/v1/token",
    description="Bearer needs none. It serves only the credentials, or the session, that have asked for it.",
)
async def token(call: ApiCall) -> TokenReply:
    """The token for the header X-Lowkiq-Token of writes."""
    return TokenReply(call.view.access.write_token(call.request))


@operation("GET", "/api/v1/openapi.json", name="getOpenapi", replies={200: [dict[str, Any]]})
async def describe(call: ApiCall) -> Response:
    """This document."""
    return Response(_document(prefix_of(call.request.scope) or "/", call.view.access.cookie_name), media_type=JSON)


@lru_cache(maxsize=8)
def _document(server: str, cookie: str) -> bytes:
    """As JSON: to make it takes a tenth of a second."""
    return msgspec.json.encode(openapi.document(OPERATIONS, server=server, session_cookie=cookie))


#: Those of these rooms, and of this one.
ROOMS: Final = (monitoring, past, jobs, actions, flow, recurring, events, prometheus)
OPERATIONS: Final = (
    *(one for room in ROOMS for one in vars(room).values() if isinstance(one, Operation)),
    token,
    describe,
)


def routes(view: View) -> list[BaseRoute]:
    """The routes of all operations."""
    return [operation.route(view) for operation in OPERATIONS]
