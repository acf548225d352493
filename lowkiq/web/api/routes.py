"""
The JSON API, live events and metrics: the one table of operations, from which routes and OpenAPI document are made.

It knows which operations there are. How they are done is said in looks, jobs, actions, events, prometheus.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from starlette.responses import Response
from starlette.routing import BaseRoute

from lowkiq.admin.bulks import Bulk
from lowkiq.web.api import actions, jobs, looks, openapi, prometheus
from lowkiq.web.api.events import MEDIA_TYPE, Streams, Tick
from lowkiq.web.api.operation import JSON, Call, Operation
from lowkiq.web.api.types import (
    ActionRequest,
    BulksReply,
    HistoryQuery,
    HistoryReply,
    JobQuery,
    JobReply,
    JobsQuery,
    JobsReply,
    Matches,
    Moved,
    NodesReply,
    QueueQuery,
    QueueReply,
    QueuesReply,
    StatsReply,
    TokenReply,
)
from lowkiq.web.security.paths import prefix_of
from lowkiq.web.view import View

_NO_QUEUE: Final = {404: "There is no such queue."}
_NO_BULK: Final = {404: "There is no such bulk, or no longer."}


def routes(view: View) -> list[BaseRoute]:
    """The routes of all operations."""
    return [operation.route(view) for operation in operations(Streams())]


def operations(streams: Streams) -> list[Operation]:
    """The table."""
    table = [*_looks(), *_jobs(), *_actions(), *_live(streams)]

    async def describe(call: Call) -> Response:
        server, cookie = prefix_of(call.request.scope) or "/", call.view.access.cookie_name
        content = msgspec.json.encode(openapi.document(table, server=server, session_cookie=cookie))
        return Response(content, media_type=JSON)

    document = Operation(
        method="GET",
        path="/api/v1/openapi.json",
        name="getOpenapi",
        summary="This document.",
        handler=describe,
        replies={200: [dict[str, Any]]},
    )
    table.append(document)
    return table


def _looks() -> list[Operation]:
    return [
        Operation(
            method="GET",
            path="/api/v1/stats",
            name="getStats",
            summary="Lengths and lag by worker, exactly as the original Lowkiq gives them.",
            handler=looks.stats,
            replies={200: [StatsReply]},
        ),
        Operation(
            method="GET",
            path="/api/v1/nodes",
            name="getNodes",
            summary="The health of every node, and what needs looking at.",
            handler=looks.nodes,
            replies={200: [NodesReply]},
        ),
        Operation(
            method="GET",
            path="/api/v1/queues",
            name="getQueues",
            summary="All queues, a row each.",
            handler=looks.queues,
            replies={200: [QueuesReply]},
        ),
        Operation(
            method="GET",
            path="/api/v1/queues/{queue}",
            name="getQueue",
            summary="A queue with its shards, and if asked for its errors by kind.",
            handler=looks.queue,
            query=QueueQuery,
            replies={200: [QueueReply]},
            refusals=_NO_QUEUE,
        ),
        Operation(
            method="GET",
            path="/api/v1/history",
            name="getHistory",
            summary="What a queue, or all of them, held and had done.",
            description="The nodes record it. Gauges are the highest of a step, counters as of its end.",
            handler=looks.history,
            query=HistoryQuery,
            replies={200: [HistoryReply]},
            refusals=_NO_QUEUE,
        ),
    ]


def _jobs() -> list[Operation]:
    return [
        Operation(
            method="GET",
            path="/api/v1/queues/{queue}/jobs",
            name="getJobs",
            summary="Jobs of a queue, a page at a time.",
            description="The queue is never read as a whole: with pattern or error a page looks at a bounded number of "
            "ids, so it can be empty and still have a next one. An error's text comes from the queue's errors.",
            handler=jobs.jobs,
            query=JobsQuery,
            replies={200: [JobsReply]},
            refusals=_NO_QUEUE,
        ),
        Operation(
            method="GET",
            path="/api/v1/queues/{queue}/job",
            name="getJob",
            summary="A job wherever it is, with its payloads and why it waits.",
            handler=jobs.job,
            query=JobQuery,
            replies={200: [JobReply]},
            refusals={404: "There is no such queue, or no such job in it: it may be done."},
        ),
    ]


def _actions() -> list[Operation]:
    return [
        Operation(
            method="POST",
            path="/api/v1/queues/{queue}/actions",
            name="act",
            summary="Perform now, revive, bury or delete jobs.",
            description="Ids are acted on at once. All that match are acted on in the background, at most as many as "
            "matched; to look before, ask with dry_run, then send the number as expected.",
            handler=actions.act,
            body=ActionRequest,
            replies={200: [Moved, Matches], 202: [Bulk]},
            refusals=_NO_QUEUE | {409: "More jobs match than expected.", 429: "Too many bulks run already."},
            examples={
                "ids": {"action": "revive", "ids": ["order-1", "order-2"], "view": "morgue"},
                "count": {"action": "delete", "all": {"view": "morgue", "pattern": "order-*"}, "dry_run": True},
                "all": {"action": "delete", "all": {"view": "morgue", "pattern": "order-*"}, "expected": 120},
            },
        ),
        Operation(
            method="GET",
            path="/api/v1/bulks",
            name="getBulks",
            summary="Actions on all that match, the newest first.",
            handler=actions.bulks,
            replies={200: [BulksReply]},
        ),
        Operation(
            method="GET",
            path="/api/v1/bulks/{id}",
            name="getBulk",
            summary="How far a bulk has come.",
            handler=actions.bulk,
            replies={200: [Bulk]},
            refusals=_NO_BULK,
        ),
        Operation(
            method="POST",
            path="/api/v1/bulks/{id}/stop",
            name="stopBulk",
            summary="Ask a bulk to stop. What it has done stays done.",
            handler=actions.stop_bulk,
            replies={202: [Bulk]},
            refusals=_NO_BULK | {409: "It is over."},
        ),
        Operation(
            method="GET",
            path="/api/v1/token",
            name="getToken",
            summary="The token for the header X-Lowkiq-Token of writes.",
            description="Bearer needs none. It serves only the credentials, or the session, that have asked for it.",
            handler=looks.token,
            replies={200: [TokenReply]},
        ),
    ]


def _live(streams: Streams) -> list[Operation]:
    return [
        Operation(
            method="GET",
            path="/api/v1/events",
            name="getEvents",
            summary="Server-sent events: live numbers.",
            description="`tick` has a Tick for its data, whenever there is a new one. `down` says in `error` that "
            "Redis does not answer, `up` (or a tick) that it does again. A stream ends after ten minutes, or under a "
            "WSGI server after one event: connect again.",
            handler=streams.respond,
            replies={200: [Tick]},
            media_type=MEDIA_TYPE,
            refusals={503: "Too many streams are open."},
        ),
        Operation(
            method="GET",
            path="/metrics",
            name="getMetrics",
            summary="Metrics for Prometheus, as text or OpenMetrics.",
            handler=prometheus.respond,
            replies={200: [str]},
            media_type="text/plain",
        ),
    ]
