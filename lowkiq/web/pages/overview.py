"""Overview: what is wrong, what all queues hold and do, and how Redis fares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from lowkiq.admin.history import TOTAL
from lowkiq.admin.metrics import QueueMetrics
from lowkiq.web.pages.alerts import alert_rows
from lowkiq.web.pages.live import LivePages, Look
from lowkiq.web.render.history_charts import SPAN_WORDS, charts_of, span_of
from lowkiq.web.snapshot import Rates, Snapshot


@dataclass(frozen=True)
class QueueRow:
    """A queue in the table."""

    name: str
    metrics: QueueMetrics
    rates: Rates
    shards_count: int
    #: Seconds until its oldest job is due (negative: late), None when nothing is queued.
    due_in: float | None
    #: Shards with jobs due and no node.
    unowned: int


def routes(pages: LivePages) -> list[BaseRoute]:
    """The page at the root."""
    view = pages.view

    def build(look: Look) -> Mapping[str, Any]:
        span = span_of(look.query.get("span"))
        points = view.backend.history(TOTAL, span) if look.reads else []
        return {
            "alerts": alert_rows(look.snapshot),
            "rows": rows_of(look.snapshot),
            "slowest": _slowest(look.snapshot),
            "span": span,
            "spans": SPAN_WORDS,
            "charts": charts_of(points, span, look.snapshot.at),
        }

    async def overview(request: Request) -> Response:
        return await pages.answer(request, "overview.html", build)

    return [Route("/", overview, name="overview")]


def rows_of(snapshot: Snapshot) -> list[QueueRow]:
    """A row a queue, by name: what moves about can't be read."""
    oldest: dict[str, float] = {}
    for shard in snapshot.shards:
        if shard.due_in is not None:
            oldest[shard.queue] = min(oldest.get(shard.queue, shard.due_in), shard.due_in)
    unowned = [shard.queue for shard in snapshot.nodes.unowned]
    return [
        QueueRow(
            name=queue,
            metrics=metrics,
            rates=snapshot.rates.get(queue, Rates()),
            shards_count=snapshot.shards_counts.get(queue, 0),
            due_in=oldest.get(queue),
            unowned=unowned.count(queue),
        )
        for queue, metrics in sorted(snapshot.queues.items())
    ]


def _slowest(snapshot: Snapshot) -> str:
    """The queue whose lag is that of all."""
    late = [(metrics.lag, queue) for queue, metrics in snapshot.queues.items() if metrics.lag >= 1]
    return max(late)[1] if late else ""
