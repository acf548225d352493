"""Overview page: what is wrong, what all queues hold and do, and how Redis fares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from lowkiq.admin.history import TOTAL, read_history
from lowkiq.web.pages.live import Visit
from lowkiq.web.render.charts import charts_of, span_of
from lowkiq.web.snapshot import Snapshot
from lowkiq.web.view import View


def build(view: View, visit: Visit) -> Mapping[str, Any]:
    """The page at the root."""
    snapshot, span = visit.snapshot, span_of(visit.query.get("span"))
    points = read_history(view.backend.caller, view.backend.namespace, TOTAL, span) if visit.reads else []
    return {
        "alerts": snapshot.alerts,
        # By name: what moves about can't be read.
        "rows": [snapshot.row(queue) for queue in sorted(snapshot.queues)],
        "oldest": _oldest(snapshot),
        "unowned": Counter(shard.queue for shard in snapshot.nodes.unowned),
        "slowest": _slowest(snapshot),
        "span": span,
        "charts": charts_of(points, span, snapshot.at),
    }


def _oldest(snapshot: Snapshot) -> dict[str, float]:
    """Queue → seconds until its oldest job is due (negative: late), where something is queued."""
    oldest: dict[str, float] = {}
    for shard in snapshot.shards:
        if shard.due_in is not None:
            oldest[shard.queue] = min(oldest.get(shard.queue, shard.due_in), shard.due_in)
    return oldest


def _slowest(snapshot: Snapshot) -> str:
    """The queue with the highest lag, if any job is late by a second."""
    late = [(metrics.lag, queue) for queue, metrics in snapshot.queues.items() if metrics.lag >= 1]
    return max(late)[1] if late else ""
