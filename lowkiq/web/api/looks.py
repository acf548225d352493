"""Looks of the API at the whole: stats, nodes, queues and their history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import msgspec
from starlette.concurrency import run_in_threadpool

from lowkiq.admin.history import SPANS
from lowkiq.admin.metrics import QueueMetrics
from lowkiq.errors import UnknownQueue, short
from lowkiq.web.api.operation import Call
from lowkiq.web.api.types import (
    Errors,
    HistoryQuery,
    HistoryReply,
    NodesReply,
    QueueQuery,
    QueueReply,
    QueueRow,
    QueuesReply,
    Stats,
    StatsReply,
    TokenReply,
)
from lowkiq.web.snapshot import Rates, Snapshot
from lowkiq.web.view import View


async def stats(call: Call) -> StatsReply:
    """What monitoring made for the original Lowkiq reads."""
    snapshot = await call.view.snapshots.get()
    names = _worker_names(call.view, snapshot.queues)
    return StatsReply(
        total=_stats(snapshot.total),
        by_worker={names[queue]: _stats(metrics) for queue, metrics in snapshot.queues.items()},
    )


async def nodes(call: Call) -> NodesReply:
    """The heartbeats, and what is wrong."""
    told = (await call.view.snapshots.get()).nodes
    return NodesReply(told.nodes, told.late, told.missing, told.doubled, told.unowned, told.is_well)


async def queues(call: Call) -> QueuesReply:
    """A row a queue."""
    snapshot = await call.view.snapshots.get()
    return QueuesReply([queue_row(snapshot, queue) for queue in snapshot.queues])


async def queue(call: Call) -> QueueReply:
    """One queue with its shards."""
    query: QueueQuery = call.query
    snapshot = await call.view.snapshots.get()
    row = queue_row(snapshot, call.queue)
    return QueueReply(
        row.queue,
        row.shards_count,
        row.metrics,
        row.rates,
        row.merge_ratio,
        shards=[shard for shard in snapshot.shards if shard.queue == row.queue],
        errors=await run_in_threadpool(_errors, call.view, row.queue) if query.errors else None,
    )


async def history(call: Call) -> HistoryReply:
    """The series of a chart."""
    query: HistoryQuery = call.query
    if query.queue is not None:
        _require_queue(await call.view.snapshots.get(), query.queue)
    points = await run_in_threadpool(call.view.backend.history, query.queue or "", query.span)
    return HistoryReply(query.queue, query.span, SPANS[query.span].step, points)


async def token(call: Call) -> TokenReply:
    """For scripts that are signed in as a browser is."""
    return TokenReply(call.view.access.write_token(call.request))


def queue_row(snapshot: Snapshot, queue: str) -> QueueRow:
    """A queue of the snapshot at a glance."""
    metrics = _require_queue(snapshot, queue)
    return QueueRow(
        queue,
        snapshot.shards_counts[queue],
        metrics,
        rates=snapshot.rates.get(queue, Rates()),
        merge_ratio=metrics.merged / metrics.pushed if metrics.pushed else 0.0,
    )


def _require_queue(snapshot: Snapshot, queue: str) -> QueueMetrics:
    try:
        return snapshot.queues[queue]
    except KeyError:
        known = ", ".join(snapshot.queues) or "none"
        raise UnknownQueue(f"no queue {short(queue)} here; known are: {known}") from None


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
