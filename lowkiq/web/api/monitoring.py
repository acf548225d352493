"""Stats, nodes, queues and their history, for monitoring."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import msgspec
from starlette.concurrency import run_in_threadpool

from lowkiq.admin.history import SPANS, TOTAL, read_history
from lowkiq.admin.metrics import QueueMetrics
from lowkiq.web.api.operation import NO_QUEUE, ApiCall, operation
from lowkiq.web.api.types import (
    Errors,
    HistoryQuery,
    HistoryReply,
    NodesReply,
    QueueQuery,
    QueueReply,
    QueuesReply,
    Stats,
    StatsReply,
)
from lowkiq.web.view import View


@operation("GET", "/api/v1/stats", "getStats")
async def stats(call: ApiCall) -> StatsReply:
    """Lengths and lag by worker, exactly as the original Lowkiq gives them."""
    snapshot = await call.view.snapshots.get()
    names = _worker_names(call.view, snapshot.queues)
    return StatsReply(
        total=_stats(snapshot.total),
        by_worker={names[queue]: _stats(metrics) for queue, metrics in snapshot.queues.items()},
    )


@operation("GET", "/api/v1/nodes", "getNodes")
async def nodes(call: ApiCall) -> NodesReply:
    """The health of every node, and what needs looking at."""
    snapshot = await call.view.snapshots.get()
    found = snapshot.nodes
    return NodesReply(
        found.nodes, found.late, found.missing, found.doubled, found.unowned, found.is_well, snapshot.alerts
    )


@operation("GET", "/api/v1/queues", "getQueues")
async def queues(call: ApiCall) -> QueuesReply:
    """All queues, a row each."""
    snapshot = await call.view.snapshots.get()
    return QueuesReply([snapshot.row(queue) for queue in snapshot.queues])


@operation("GET", "/api/v1/queues/{queue}", "getQueue", query=QueueQuery, refusals=NO_QUEUE)
async def queue(call: ApiCall) -> QueueReply:
    """A queue with its shards, and if asked for its errors by kind."""
    query: QueueQuery = call.query
    snapshot = await call.view.snapshots.get()
    row = snapshot.row(call.queue)
    return QueueReply(
        **msgspec.structs.asdict(row),
        shards=[shard for shard in snapshot.shards if shard.queue == row.queue],
        errors=await run_in_threadpool(_errors, call.view, row.queue) if query.errors else None,
    )


@operation(
    "GET",
    "/api/v1/history",
    "getHistory",
    description="The nodes record it. Gauges are the highest of a step, counters as of its end.",
    query=HistoryQuery,
    refusals=NO_QUEUE,
)
async def history(call: ApiCall) -> HistoryReply:
    """What a queue, or all of them, held and had done."""
    query: HistoryQuery = call.query
    if query.queue is not None:
        (await call.view.snapshots.get()).row(query.queue)  # there must be one
    backend = call.view.backend
    points = await run_in_threadpool(read_history, backend.caller, backend.namespace, query.queue or TOTAL, query.span)
    return HistoryReply(query.queue, query.span, SPANS[query.span].step, points)


def _worker_names(view: View, queues: Mapping[str, QueueMetrics]) -> dict[str, str]:
    """Queue → its worker's class name; its own name, if that is another's name as well or there is no such worker."""
    classes = {queue: worker.__name__ for queue, worker in view.app.workers.items()}
    uses = Counter(classes.values())
    own = {queue: name for queue, name in classes.items() if uses[name] == 1 and name not in queues}
    return {queue: own.get(queue, queue) for queue in queues}


def _errors(view: View, queue: str) -> Errors:
    groups, sampled, total = view.backend.previews(queue).errors()
    # JSON has no way to name bytes that are no UTF-8.
    named = [(group, group.example_id.encode("utf-8", "backslashreplace").decode()) for group in groups]
    return Errors([msgspec.structs.replace(group, example_id=id) for group, id in named], sampled, total)


def _stats(metrics: QueueMetrics) -> Stats:
    return Stats(metrics.length, metrics.morgue_length, metrics.lag)
