"""Stats, nodes, queues and their history, for monitoring."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import msgspec

from lowkiq.admin.alerts.acknowledging import acknowledge
from lowkiq.admin.jobs.failures import ErrorGroup, named
from lowkiq.admin.limits import read_limits
from lowkiq.admin.metrics import QueueMetrics
from lowkiq.admin.past.history import SPANS, TOTAL, read_history
from lowkiq.admin.past.statistics import number_of, read_statistics
from lowkiq.web.api.input import Rejected
from lowkiq.web.api.operation import NO_QUEUE, ApiCall, Reply, operation
from lowkiq.web.api.replies import (
    AcknowledgedReply,
    AlertRow,
    AlertsReply,
    Errors,
    FailuresReply,
    HistoryReply,
    NodesReply,
    OwnersReply,
    QueueReply,
    QueuesReply,
    StatisticsReply,
    Stats,
    StatsReply,
)
from lowkiq.web.api.requests import (
    AcknowledgeRequest,
    AlertsQuery,
    FailuresQuery,
    HistoryQuery,
    QueueQuery,
    StatisticsQuery,
)
from lowkiq.web.snapshot import Snapshot
from lowkiq.web.view import View

#: The header with the seconds since the oldest of the numbers was read.
AGE = "X-Lowkiq-Age"


@operation(
    "GET",
    "/api/v1/stats",
    description="The header X-Lowkiq-Age has the seconds since the oldest of the numbers was read: mostly less than "
    "one. They grow where Redis is slow, and where there are more than 2,000 shards, which take turns.",
    replies={200: [StatsReply]},
)
async def stats(call: ApiCall) -> Reply:
    """Lengths and lag by worker, exactly as the original Lowkiq gives them."""
    snapshot = await call.view.snapshots.exact()
    names = _worker_names(call.view, snapshot.queues)
    reply = StatsReply(
        total=_stats(snapshot.total),
        by_worker={names[queue]: _stats(metrics) for queue, metrics in snapshot.queues.items()},
    )
    return Reply(200, reply, {AGE: f"{snapshot.age:.1f}"})


@operation("GET", "/api/v1/nodes")
def nodes(_: ApiCall, snapshot: Snapshot) -> NodesReply:
    """The health of every node, and what needs looking at."""
    found = snapshot.nodes
    is_well = all(alert.acknowledged for alert in snapshot.alerts)
    return NodesReply(found.nodes, found.late, found.missing, found.doubled, found.unowned, is_well, snapshot.alerts)


@operation("GET", "/api/v1/alerts", query=AlertsQuery)
def alerts(call: ApiCall, snapshot: Snapshot) -> AlertsReply:
    """All that is wrong with nodes, queues and Redis, the worst first."""
    query: AlertsQuery = call.query
    found = [
        AlertRow(**msgspec.structs.asdict(alert), key=alert.key, queue=alert.queue, text=alert.text)
        for alert in snapshot.alerts
        if (query.queue is None or alert.is_about(query.queue)) and query.severity in {None, alert.severity}
    ]
    return AlertsReply(all(one.acknowledged for one in snapshot.alerts), snapshot.at, found)


@operation(
    "POST",
    "/api/v1/alerts/acknowledge",
    description="They are told last from then on, and wake nobody. Keys of alerts that are over are left out.",
    body=AcknowledgeRequest,
    examples={"mute": {"keys": ["late queue:OrderSync"], "seconds": 7200, "note": "a flood that we expect"}},
)
def acknowledge_alerts(call: ApiCall, snapshot: Snapshot) -> AcknowledgedReply:
    """Say that somebody has seen alerts."""
    body: AcknowledgeRequest = call.body
    found = [alert for alert in snapshot.alerts if alert.key in body.keys]
    until = None if body.seconds is None else snapshot.at + body.seconds
    caller, namespace = call.backend.caller, call.backend.namespace
    return AcknowledgedReply(acknowledge(caller, namespace, found, call.who, until=until, note=body.note))


@operation("GET", "/api/v1/queues")
def queues(_: ApiCall, snapshot: Snapshot) -> QueuesReply:
    """All queues, a row each."""
    return QueuesReply([snapshot.row(queue) for queue in snapshot.queues])


@operation("GET", "/api/v1/queues/{queue}", query=QueueQuery, refusals=NO_QUEUE)
def queue(call: ApiCall, snapshot: Snapshot) -> QueueReply:
    """A queue with its shards, and if asked for its errors by kind."""
    row = snapshot.row(call.queue)
    limits = read_limits(call.backend.caller, call.backend.namespace, [row.queue], snapshot.live)
    return QueueReply(
        **msgspec.structs.asdict(row),
        shards=[shard for shard in snapshot.shards if shard.queue == row.queue],
        limit=limits.get(row.queue),
        errors=Errors(*_errors(call)) if call.query.errors else None,
    )


@operation(
    "GET",
    "/api/v1/queues/{queue}/owners",
    description="Owners are by the leases; targets and reasons are by what nodes say with their heartbeats, which are "
    "up to five seconds old.",
    refusals=NO_QUEUE,
)
def owners(call: ApiCall, snapshot: Snapshot) -> OwnersReply:
    """Which node has each shard of a queue, which is to have it, and why."""
    queue = snapshot.row(call.queue).queue
    found = [row for row in snapshot.owners.values() if row.queue == queue]
    return OwnersReply(queue, sorted(found, key=lambda row: row.shard))


@operation(
    "GET",
    "/api/v1/queues/{queue}/failures",
    description="A group's text is what jobs, and actions on all, take as error. Its count is of the sample. First and "
    "last seen, and total, the failures in all, are by the queue's ledger, which keeps 200 groups for 30 days.",
    query=FailuresQuery,
    refusals=NO_QUEUE,
)
def failures(call: ApiCall) -> FailuresReply:
    """Errors of a queue's retries, or of its morgue, by kind."""
    return FailuresReply(*_errors(call, call.query.view), call.queue, call.query.view)


@operation(
    "GET",
    "/api/v1/history",
    description="The nodes record it. Gauges are the highest of a step, counters as of its end.",
    query=HistoryQuery,
    refusals=NO_QUEUE,
)
def history(call: ApiCall, snapshot: Snapshot) -> HistoryReply:
    """What a queue, or all of them, held and had done."""
    query: HistoryQuery = call.query
    if query.queue is not None:
        snapshot.row(query.queue)  # there must be one
    points = read_history(call.backend.caller, call.backend.namespace, query.queue or TOTAL, query.span)
    return HistoryReply(query.queue, query.span, SPANS[query.span].step, points)


@operation(
    "GET",
    "/api/v1/queues/{queue}/statistics",
    description="A wait is counted on the day of the claim, a run on that of its end. Percentiles are within 5 %.",
    query=StatisticsQuery,
    refusals=NO_QUEUE,
)
def statistics(call: ApiCall, snapshot: Snapshot) -> StatisticsReply:
    """How long jobs of a queue waited and ran, by day."""
    query: StatisticsQuery = call.query
    if query.day is not None and query.days is not None:
        raise Rejected(400, "day and days both say which days: give one of them")
    queue, until = snapshot.row(call.queue).queue, None if query.day is None else number_of(query.day)
    found = read_statistics(call.backend.caller, call.backend.namespace, queue, query.days or 1, until=until)
    return StatisticsReply(queue, found)


def _worker_names(view: View, queues: Mapping[str, QueueMetrics]) -> dict[str, str]:
    """Queue → its worker's class name; its own name, if that is another's name as well or there is no such worker."""
    classes = {queue: worker.__name__ for queue, worker in view.app.workers.items()}
    uses = Counter(classes.values())
    own = {queue: name for queue, name in classes.items() if uses[name] == 1 and name not in queues}
    return {queue: own.get(queue, queue) for queue in queues}


def _errors(call: ApiCall, *of: str) -> tuple[list[ErrorGroup], int, int]:
    groups, sampled, total = call.backend.previews(call.queue).errors(*of)
    return named(groups), sampled, total


def _stats(metrics: QueueMetrics) -> Stats:
    return Stats(metrics.length, metrics.morgue_length, metrics.lag)
