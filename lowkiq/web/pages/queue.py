"""Queue: one queue's numbers, its shards, and its jobs by due time, retries, in flight and morgue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from lowkiq.admin.actions import actions_of
from lowkiq.admin.metrics import QueueMetrics
from lowkiq.admin.previews import ErrorGroup, Page
from lowkiq.web.owners import Owners
from lowkiq.web.pages.action_words import WORDINGS, result_of
from lowkiq.web.pages.alerts import alert_rows_of_queue
from lowkiq.web.pages.job_rows import flying_rows, job_rows
from lowkiq.web.pages.live import LivePages, Look
from lowkiq.web.pages.shard_rows import WORST, shard_rows
from lowkiq.web.render.history_charts import SPAN_WORDS, charts_of, span_of
from lowkiq.web.render.templating import from_field
from lowkiq.web.snapshot import Rates
from lowkiq.web.view import View

#: View → what its tab says.
VIEWS: Final = {"due": "By due time", "retries": "Retries", "in_flight": "In flight", "morgue": "Morgue"}
#: Parameters that links of the page keep.
ADDRESS: Final = ("view", "pattern", "error", "retry_count", "span", "shards", "cursor")
#: Jobs of a page, jobs in flight, and groups of errors that are shown.
JOBS, FLYING, GROUPS = 25, 100, 12


@dataclass(frozen=True)
class Filter:
    """Which jobs were asked for."""

    view: str
    pattern: str | None
    error: str | None
    retry_count: int | None
    cursor: str | None

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Filter:
        """What the address says; what makes no sense is left out."""
        view = query.get("view", "")
        retry_count = query.get("retry_count", "").strip()
        return cls(
            view=view if view in VIEWS else "due",
            pattern=query.get("pattern") or None,
            error=_error(query),
            retry_count=int(retry_count) if view == "retries" and _is_count(retry_count) else None,
            cursor=query.get("cursor") or None,
        )

    @property
    def is_narrow(self) -> bool:
        """Whether only some of the view's jobs are meant."""
        return not (self.pattern is None and self.error is None and self.retry_count is None)


@dataclass(frozen=True)
class Groups:
    """Errors of a view."""

    groups: Sequence[ErrorGroup]
    #: Jobs that were looked at, and how many there are.
    sampled: int
    of: int

    @property
    def is_sample(self) -> bool:
        """Whether there are jobs that were not looked at."""
        return self.sampled < self.of


def routes(pages: LivePages) -> list[BaseRoute]:
    """The page of a queue."""
    view = pages.view

    async def queue(request: Request) -> Response:
        return await pages.answer(request, "queue.html", lambda look: _build(view, look))

    return [Route("/queues/{queue}", queue, name="queue")]


def _build(view: View, look: Look) -> Mapping[str, Any]:
    queue = look.queue()
    found = Filter.of(look.query)
    return _numbers(view, look, queue) | _shards(look, queue) | _jobs(view, look, queue, found)


def _numbers(view: View, look: Look, queue: str) -> dict[str, Any]:
    span = span_of(look.query.get("span"))
    points = view.backend.history(queue, span) if look.reads else []
    return {
        "queue": queue,
        "path": f"/queues/{queue}",
        "metrics": look.snapshot.queues[queue],
        "rates": look.snapshot.rates.get(queue, Rates()),
        "alerts": alert_rows_of_queue(look.snapshot, queue),
        "span": span,
        "spans": SPAN_WORDS,
        "charts": charts_of(points, span, look.snapshot.at),
        "address": {key: value for key, value in look.query.items() if key in ADDRESS} | {"error": _error(look.query)},
    }


def _shards(look: Look, queue: str) -> dict[str, Any]:
    rows = shard_rows(look.snapshot, Owners(look.snapshot), queue)
    shown = rows if look.query.get("shards") == "all" else rows[:WORST]
    return {
        "shards": shown,
        "shards_count": look.snapshot.shards_counts.get(queue, 0),
        "shards_left": len(rows) - len(shown),
    }


def _jobs(view: View, look: Look, queue: str, found: Filter) -> dict[str, Any]:
    previews = view.backend.previews(queue) if look.reads else None
    is_flying = found.view == "in_flight"
    page, groups = Page([], None), Groups([], 0, 0)
    if previews and look.is_whole and not is_flying:
        page = previews.page(
            found.view,
            cursor=found.cursor,
            limit=JOBS,
            pattern=found.pattern,
            error=found.error,
            retry_count=found.retry_count,
        )
        if found.view != "due":
            groups = Groups(*previews.errors(found.view))
    return {
        "views": VIEWS,
        "counts": _counts(look.snapshot.queues[queue]),
        "filter": found,
        "page": page,
        "rows": job_rows(page.jobs, payloads=view.payloads),
        "groups": groups,
        "most_groups": GROUPS,
        "flying": flying_rows(previews, Owners(look.snapshot), queue, FLYING) if previews and is_flying else [],
        "most_flying": FLYING,
        "wordings": WORDINGS,
        "buttons": () if view.read_only else actions_of(found.view),
        "max_retry_count": max_retry_count(view, queue),
        "result": result_of(look.query),
    }


def max_retry_count(view: View, queue: str) -> int | None:
    """How often a job may fail, if this application has the queue's worker."""
    worker = view.app.workers.get(queue)
    return None if worker is None else worker.max_retry_count


def _counts(metrics: QueueMetrics) -> dict[str, int]:
    return {
        "due": metrics.length,
        "retries": metrics.retries,
        "in_flight": metrics.busy,
        "morgue": metrics.morgue_length,
    }


def _error(query: Mapping[str, str]) -> str | None:
    """A group of errors, as links name it, or as the form for searching carries it."""
    return from_field(query["error_field"]) if "error_field" in query else query.get("error")


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10  # noqa: PLR2004 (digits that Redis compares exactly)
