"""Overview page: what is wrong, what all queues hold and do, and how Redis fares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from lowkiq.admin.past.history import TOTAL, read_history
from lowkiq.admin.words import age
from lowkiq.redaction import redact
from lowkiq.web.pages.live import Visit
from lowkiq.web.pages.statistics import marked
from lowkiq.web.render.charts import charts_of, span_of
from lowkiq.web.render.formatting import plural
from lowkiq.web.snapshot import QueueRow, Snapshot
from lowkiq.web.view import View

#: Name of a column by which the queues can be sorted → what it goes by. Numbers have their highest first.
COLUMNS: Final[Mapping[str, Callable[[QueueRow], Any]]] = {
    "queue": lambda row: row.queue,
    "waiting": lambda row: row.metrics.due,
    "scheduled": lambda row: row.metrics.scheduled,
    "running": lambda row: row.metrics.busy,
    "retrying": lambda row: row.metrics.retries,
    "blocked": lambda row: row.metrics.blocked,
    "held": lambda row: row.metrics.held,
    "morgue": lambda row: row.metrics.morgue_length,
    "lag": lambda row: row.metrics.lag,
    "pushed": lambda row: row.rates.pushed,
    "processed": lambda row: row.rates.processed,
    "failed": lambda row: row.rates.failed,
    "merged": lambda row: row.merge_ratio,
}


@dataclass(frozen=True)
class Sort:
    """The order of the queues."""

    name: str
    is_reversed: bool

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Sort:
        """By name, unless the address has another column: what moves about can't be read."""
        name = query.get("sort", "")
        return cls(name if name in COLUMNS else "queue", query.get("reverse") == "1")

    @property
    def goes_down(self) -> bool:
        """True if the highest comes first."""
        return (self.name != "queue") != self.is_reversed

    def rows(self, snapshot: Snapshot) -> list[QueueRow]:
        """All queues; equal ones by name."""
        by_name = [snapshot.row(queue) for queue in sorted(snapshot.queues)]
        return sorted(by_name, key=COLUMNS[self.name], reverse=self.goes_down)


def build(view: View, visit: Visit) -> Mapping[str, Any]:
    """The page at the root."""
    snapshot, span = visit.snapshot, span_of(visit.query.get("span"))
    sort = Sort.of(visit.query)
    points = read_history(view.backend.caller, view.backend.namespace, TOTAL, span) if visit.reads else []
    return {
        "alerts": snapshot.alerts,
        "tracked": view.backend.tracked() if visit.reads else [],
        "calm": _calm(snapshot),
        "sort": sort,
        "rows": sort.rows(snapshot),
        "address": {name: visit.query.get(name) for name in ("span", "sort", "reverse")},
        "redis_url": "" if view.app.settings.redis else redact(view.app.settings.redis_url),
        "unowned": Counter(shard.queue for shard in snapshot.nodes.unowned),
        "slowest": _slowest(snapshot),
        "span": span,
        "charts": charts_of(points, span, snapshot.at, marked(view, visit, span)),
    }


def _calm(snapshot: Snapshot) -> str:
    """What was looked at, when nothing of it is wrong."""
    nodes = snapshot.nodes.nodes
    heard = age(max(1.0, *(node.beat_age for node in nodes)) if nodes else 0)
    counts = f"{plural(len(nodes), 'node')}, {plural(len(snapshot.queues), 'queue')}"
    return f"Nothing is wrong: {counts}, every node heard in the last {heard}"


def _slowest(snapshot: Snapshot) -> str:
    """The queue with the lag of all, if any job is late by a second."""
    lag = snapshot.total.lag
    return next((queue for queue, metrics in snapshot.queues.items() if metrics.lag == lag >= 1), "")
