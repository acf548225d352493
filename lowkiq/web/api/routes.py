"""The API's operations, and the routes and the OpenAPI document made from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from starlette.responses import Response
from starlette.routing import BaseRoute

from lowkiq.admin.bulks import Bulk
from lowkiq.web.api import actions, jobs, monitoring, openapi, prometheus
from lowkiq.web.api.operation import JSON, NO_QUEUE, Call, Operation, operation
from lowkiq.web.api.types import ActionRequest, JobQuery, JobsQuery, Matches, Moved, TokenReply
from lowkiq.web.security.paths import prefix_of
from lowkiq.web.view import View

_NO_BULK: Final = {404: "There is no such bulk, or no longer."}


def routes(view: View) -> list[BaseRoute]:
    """The routes of all operations."""
    return [operation.route(view) for operation in operations()]


def operations() -> list[Operation]:
    """All operations, in the order of the OpenAPI document."""
    reads = [monitoring.stats, monitoring.nodes, monitoring.queues, monitoring.queue, monitoring.history, *_jobs()]
    described = [*reads, *_actions(), token, *_live()]

    @operation("GET", "/api/v1/openapi.json", "getOpenapi", replies={200: [dict[str, Any]]})
    async def describe(call: Call) -> Response:
        """This document."""
        server, cookie = prefix_of(call.request.scope) or "/", call.view.access.cookie_name
        content = msgspec.json.encode(openapi.document([*described, describe], server=server, session_cookie=cookie))
        return Response(content, media_type=JSON)

    return [*described, describe]


@operation(
    "GET",
    "/api/v1/token",
    "getToken",
    description="Bearer needs none. It serves only the credentials, or the session, that have asked for it.",
)
async def token(call: Call) -> TokenReply:
    """The token for the header X-Lowkiq-Token of writes."""
    return TokenReply(call.view.access.write_token(call.request))


def _jobs() -> Sequence[Operation]:
    return [
        operation(
            "GET",
            "/api/v1/queues/{queue}/jobs",
            "getJobs",
            summary="Jobs of a queue, a page at a time.",
            description="The queue is never read as a whole: with pattern or error a page looks at a bounded number of "
            "ids, so it can be empty and still have a next one. An error's text comes from the queue's errors.",
            query=JobsQuery,
            refusals=NO_QUEUE,
        )(jobs.jobs),
        operation(
            "GET",
            "/api/v1/queues/{queue}/job",
            "getJob",
            summary="A job wherever it is, with its payloads and why it waits.",
            query=JobQuery,
            refusals={404: "There is no such queue, or no such job in it: it may be done."},
        )(jobs.job),
    ]


def _actions() -> Sequence[Operation]:
    return [
        operation(
            "POST",
            "/api/v1/queues/{queue}/actions",
            "act",
            summary="Perform now, revive, bury or delete jobs.",
            description="Ids are acted on at once. All that match are acted on in the background, at most as many as "
            "matched; to look before, ask with dry_run, then send the number as expected.",
            body=ActionRequest,
            replies={200: [Moved, Matches], 202: [Bulk]},
            refusals=NO_QUEUE | {409: "More jobs match than expected.", 429: "Too many bulks run already."},
            examples={
                "ids": {"action": "revive", "ids": ["order-1", "order-2"], "view": "morgue"},
                "count": {"action": "delete", "all": {"view": "morgue", "pattern": "order-*"}, "dry_run": True},
                "all": {"action": "delete", "all": {"view": "morgue", "pattern": "order-*"}, "expected": 120},
            },
        )(actions.act),
        operation("GET", "/api/v1/bulks", "getBulks", summary="Actions on all that match, the newest first.")(
            actions.bulks
        ),
        operation("GET", "/api/v1/bulks/{id}", "getBulk", summary="How far a bulk has come.", refusals=_NO_BULK)(
            actions.bulk
        ),
        operation(
            "POST",
            "/api/v1/bulks/{id}/stop",
            "stopBulk",
            summary="Ask a bulk to stop. What it has done stays done.",
            replies={202: [Bulk]},
            refusals=_NO_BULK | {409: "It is over."},
        )(actions.stop_bulk),
    ]


def _live() -> Sequence[Operation]:
    return [
        operation(
            "GET",
            "/metrics",
            "getMetrics",
            summary="Metrics for Prometheus, as text or OpenMetrics.",
            replies={200: [str]},
            media_type="text/plain",
        )(prometheus.respond),
    ]
