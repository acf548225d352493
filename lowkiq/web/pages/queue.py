"""Page of a queue: its numbers, its shards, and its jobs by state (pages/jobs.py)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from lowkiq.admin.limits import Limit, read_limits
from lowkiq.admin.metrics import ShardMetrics
from lowkiq.admin.past.history import read_history
from lowkiq.policies import most_retries, without_limits
from lowkiq.queue.rates import read_waiting
from lowkiq.web.pages import statistics
from lowkiq.web.pages.jobs import address_of, jobs_of
from lowkiq.web.pages.live import Visit
from lowkiq.web.pages.statistics import marked
from lowkiq.web.render.charts import charts_of, span_of
from lowkiq.web.view import View

#: Shards that are shown unless all are asked for.
WORST: Final = 50


def build(view: View, visit: Visit) -> Mapping[str, Any]:
    """The page of a queue."""
    queue = visit.queue()
    numbers = statistics.numbers(view, visit, queue)
    return numbers | _numbers(view, visit, queue) | _shards(visit, queue) | jobs_of(view, visit, queue)


def _numbers(view: View, visit: Visit, queue: str) -> dict[str, Any]:
    span = span_of(visit.query.get("span"))
    points = read_history(view.backend.caller, view.backend.namespace, queue, span) if visit.reads else []
    return {
        "queue": queue,
        "path": f"/queues/{queue}",
        "row": visit.snapshot.row(queue),
        "reshard": visit.snapshot.reshards.get(queue),
        "newest": max((row.generation for row in visit.snapshot.shards if row.queue == queue), default=1),
        "alerts": [one for one in visit.snapshot.alerts if one.is_about(queue)],
        "span": span,
        "charts": charts_of(points, span, visit.snapshot.at, marked(view, visit, span, queue)),
        "address": address_of(visit.query),
        "max_retry_count": max_retry_count(view, visit, queue),
        "when_exhausted": when_exhausted(view, visit, queue),
        "limit": limit_of(view, visit, queue),
        **_rate(view, visit, queue),
    }


def _shards(visit: Visit, queue: str) -> dict[str, Any]:
    shards = _worst_first(shard for shard in visit.snapshot.shards if shard.queue == queue)
    shown = shards if visit.query.get("shards") == "all" else shards[:WORST]
    return {"shards": shown, "shards_left": len(shards) - len(shown), "owners": visit.snapshot.owners}


def max_retry_count(view: View, visit: Visit, queue: str) -> int | None:
    """
    Retries of the queue's jobs, as people have set it live or else as its worker says; None when this application does
    not have the worker, or it depends on the error.
    """
    worker, setting = view.app.workers.get(queue), visit.snapshot.live.get(queue, {}).get("max_retry_count")
    if worker is None:
        return None
    if setting is None:
        return most_retries(worker.retry, worker.max_retry_count)
    return most_retries(without_limits(worker.retry), int(setting.value or 0))


def when_exhausted(view: View, visit: Visit, queue: str) -> str:
    """Fate of a job of the queue after its last try, as people have set it live or else as its worker says."""
    worker, setting = view.app.workers.get(queue), visit.snapshot.live.get(queue, {}).get("when_exhausted")
    return str(setting.value) if setting else "bury" if worker is None else worker.when_exhausted


def limit_of(view: View, visit: Visit, queue: str) -> Limit | None:
    """The places of a queue with `max_running`; None without one, and in a tick."""
    if not visit.reads:
        return None
    return read_limits(view.backend.caller, view.backend.namespace, [queue], visit.snapshot.live).get(queue)


def _rate(view: View, visit: Visit, queue: str) -> dict[str, Any]:
    """The rate of its jobs, as people have set it live or else as its worker says; and those that wait for it."""
    worker, setting = view.app.workers.get(queue), visit.snapshot.live.get(queue, {}).get("rate")
    rate = setting.value if setting else worker.rate if worker else None
    caller, namespace = view.backend.caller, view.backend.namespace
    waiting = read_waiting(caller, namespace, [queue], visit.snapshot.at) if visit.reads else {}
    return {"rate_of_starts": rate, "rated": waiting.get(queue)}


def _worst_first(shards: Iterable[ShardMetrics]) -> list[ShardMetrics]:
    """Shards that nobody runs, then those that are late, then the fullest."""
    # Whole seconds of lag: what changes by a hair at each refresh must not make the table jump.
    return sorted(
        shards,
        key=lambda row: (not row.is_unowned, min(int(row.due_in or 0), 0), -row.busy, -row.length, row.shard),
    )
