"""Page of a queue: its numbers, its shards, and its jobs by due time, retries, in flight and morgue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from lowkiq.admin.actions import actions_of
from lowkiq.admin.beats.health import Running, batch_of
from lowkiq.admin.history import read_history
from lowkiq.admin.metrics import ShardMetrics
from lowkiq.admin.previews import ErrorGroup, Page, Previews
from lowkiq.admin.reader import JobPreview
from lowkiq.admin.search import main_line
from lowkiq.admin.words import printable
from lowkiq.web.pages.action_words import WORDINGS, result_of
from lowkiq.web.pages.live import Visit
from lowkiq.web.render.charts import charts_of, span_of
from lowkiq.web.render.templating import from_field
from lowkiq.web.snapshot import Snapshot
from lowkiq.web.view import View

#: View → what its tab says.
VIEWS: Final = {"due": "By due time", "retries": "Retries", "in_flight": "In flight", "morgue": "Morgue"}
#: Parameters that links of the page keep.
ADDRESS: Final = ("view", "pattern", "error", "retry_count", "span", "shards", "cursor")
#: Jobs of a page, jobs in flight, and groups of errors that are shown.
JOBS, FLYING, GROUPS = 25, 100, 12
#: Shards that are shown unless all are asked for.
WORST: Final = 50
#: Characters of a payload or an error in a line.
PREVIEW: Final = 120


@dataclass(frozen=True)
class Filter:
    """Jobs that were asked for."""

    view: str
    pattern: str | None
    error: str | None
    retry_count: int | None
    cursor: str | None

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Filter:
        """Reads the address, leaving out what makes no sense."""
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
        """True when only some of the view's jobs are meant."""
        return not (self.pattern is None and self.error is None and self.retry_count is None)


@dataclass(frozen=True)
class ListedJob:
    """A job in a list."""

    job: JobPreview
    #: The first line of its error, else the beginning of its lowest payload, as far as those may be shown.
    preview: str
    #: The preview is the error.
    is_error: bool


@dataclass(frozen=True)
class JobInFlight:
    """A job in flight."""

    job: JobPreview
    node: str
    state: str
    #: The batch that performs it, or perhaps does.
    running: Running | None

    @property
    def place(self) -> str:
        """Where on its node it runs."""
        return self.running.place if self.running else ""

    @property
    def order(self) -> tuple[Any, ...]:
        """Sorts what is performed before what comes next, and the longest first."""
        return self.state != "performed", -(self.running.seconds if self.running else 0.0), self.job.shard


def build(view: View, visit: Visit) -> Mapping[str, Any]:
    """The page of a queue."""
    queue = visit.queue()
    return _numbers(view, visit, queue) | _shards(visit, queue) | _jobs(view, visit, queue, Filter.of(visit.query))


def _numbers(view: View, visit: Visit, queue: str) -> dict[str, Any]:
    span = span_of(visit.query.get("span"))
    points = read_history(view.backend.caller, view.backend.namespace, queue, span) if visit.reads else []
    return {
        "queue": queue,
        "path": f"/queues/{queue}",
        "row": visit.snapshot.row(queue),
        "alerts": [one for one in visit.snapshot.alerts if one.kind != "Redis" and one.subject == queue],
        "span": span,
        "charts": charts_of(points, span, visit.snapshot.at),
        "address": {key: value for key, value in visit.query.items() if key in ADDRESS}
        | {"error": _error(visit.query)},
    }


def _shards(visit: Visit, queue: str) -> dict[str, Any]:
    shards = _worst_first(shard for shard in visit.snapshot.shards if shard.queue == queue)
    shown = shards if visit.query.get("shards") == "all" else shards[:WORST]
    return {"shards": shown, "shards_left": len(shards) - len(shown)}


def _jobs(view: View, visit: Visit, queue: str, found: Filter) -> dict[str, Any]:
    previews = view.backend.previews(queue) if visit.reads else None
    metrics, is_flying = visit.snapshot.queues[queue], found.view == "in_flight"
    page = Page([], None)
    groups: Sequence[ErrorGroup] = ()
    sampled = total = 0
    if previews and visit.is_whole and not is_flying:
        page = previews.page(limit=JOBS, **asdict(found))
        if found.view != "due":
            groups, sampled, total = previews.errors(found.view)
    return {
        "views": VIEWS,
        "counts": {
            "due": metrics.length,
            "retries": metrics.retries,
            "in_flight": metrics.busy,
            "morgue": metrics.morgue_length,
        },
        "filter": found,
        "page": page,
        "rows": [_listed(job, payloads=view.payloads) for job in page.jobs],
        "groups": groups,
        "sampled": sampled,
        "total": total,
        "most_groups": GROUPS,
        "flying": _in_flight(previews, visit.snapshot, queue) if previews and is_flying else [],
        "most_flying": FLYING,
        "wordings": WORDINGS,
        "buttons": () if view.read_only else actions_of(found.view),
        "max_retry_count": max_retry_count(view, queue),
        "result": result_of(visit.query),
    }


def max_retry_count(view: View, queue: str) -> int | None:
    """Retries that the queue's worker allows, None when this application does not have the worker."""
    worker = view.app.workers.get(queue)
    return None if worker is None else worker.max_retry_count


def is_async(view: View, queue: str) -> bool:
    """True if its jobs are known to run as tasks."""
    worker = view.app.workers.get(queue)
    return worker is not None and worker.shape.is_async


def _error(query: Mapping[str, str]) -> str | None:
    """Error group in the address: as a link has it, or as the search form carries it."""
    return from_field(query["error_field"]) if "error_field" in query else query.get("error")


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10  # noqa: PLR2004 (digits that Redis compares exactly)


def _worst_first(shards: Iterable[ShardMetrics]) -> list[ShardMetrics]:
    """Shards that nobody runs, then those that are late, then the fullest."""
    # Whole seconds of lag: what changes by a hair at each refresh must not make the table jump.
    return sorted(
        shards,
        key=lambda row: (not row.is_unowned, min(int(row.due_in or 0), 0), -row.busy, -row.length, row.shard),
    )


def _listed(job: JobPreview, *, payloads: bool) -> ListedJob:
    error = main_line(job.error)
    if error:
        return ListedJob(job, printable(error, PREVIEW), is_error=True)
    lowest = job.payloads[0] if job.payloads and payloads else None
    text = lowest.data[: 4 * PREVIEW].decode("utf-8", "replace") if lowest else ""
    return ListedJob(job, printable(text, PREVIEW), is_error=False)


def _in_flight(previews: Previews, snapshot: Snapshot, queue: str) -> list[JobInFlight]:
    """Jobs in flight: those that are performed, the longest first, then those that come next."""
    return sorted((_flying(job, snapshot, queue) for job in previews.in_flight(FLYING)), key=lambda row: row.order)


def _flying(job: JobPreview, snapshot: Snapshot, queue: str) -> JobInFlight:
    batches = snapshot.running(queue, job.shard)
    running = batch_of(job.id, batches)
    if running is None:
        shard = snapshot.shard(queue, job.shard)
        state = "claimed, next" if batches else "claimed"
        return JobInFlight(job, snapshot.owner_name(shard.owner if shard else None), state, None)
    state = "performed" if running.has(job.id) else "performed, or next"
    return JobInFlight(job, snapshot.owner_name(running.node.node), state, running)
