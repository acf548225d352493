"""Jobs of a queue's page: a list of one state, a page at a time, in the order of its index, either way round."""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from lowkiq.admin.beats.health import Running, batch_of
from lowkiq.admin.jobs.actions import actions_of
from lowkiq.admin.jobs.deeds import DEEDS
from lowkiq.admin.jobs.failures import ErrorGroup
from lowkiq.admin.jobs.finder import LONGEST
from lowkiq.admin.jobs.previews import Page, Previews
from lowkiq.admin.jobs.reader import JobPreview
from lowkiq.admin.jobs.states import FAILURES, STATES, State, counts_of, state_named
from lowkiq.admin.jobs.tags import TagCount, TenantBacklog
from lowkiq.admin.jobs.undo import KEPT_SECONDS
from lowkiq.admin.words import printable
from lowkiq.failure import main_line
from lowkiq.web.pages.actions import result_of, undo_of
from lowkiq.web.pages.live import Visit
from lowkiq.web.render.templating import from_field
from lowkiq.web.snapshot import Snapshot
from lowkiq.web.view import View

#: Running jobs that are shown.
SHOWN: Final = 100


@dataclass(frozen=True)
class JobInFlight:
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


def running_jobs(previews: Previews, snapshot: Snapshot, queue: str) -> list[JobInFlight]:
    """Jobs in hand: those that are performed, the longest first, then those that come next."""
    return sorted((_flying(job, snapshot, queue) for job in previews.in_flight(SHOWN)), key=lambda row: row.order)


def _flying(job: JobPreview, snapshot: Snapshot, queue: str) -> JobInFlight:
    batches = snapshot.running(queue, job.shard)
    running = batch_of(job.id, batches)
    if running is None:
        shard = snapshot.shard(queue, job.shard)
        state = "claimed, next" if batches else "claimed"
        return JobInFlight(job, snapshot.owner_name(shard.owner if shard else None), state, None)
    state = "performed" if running.has(job.id) else "performed, or next"
    return JobInFlight(job, snapshot.owner_name(running.node.node), state, running)


#: Parameters that links of the page keep.
ADDRESS: Final = (
    "view",
    "pattern",
    "error",
    "retry_count",
    "tag",
    "from",
    "reverse",
    "span",
    "shards",
    "cursor",
    "days",
    "day",
)
#: Jobs of a page, and groups of errors that are shown.
JOBS, GROUPS = 25, 12
#: Tags that the page names, tenants with the largest backlogs, and shards of a queue up to which it does.
TAGS, BACKLOGS, MOST_TAGGED_SHARDS = 12, 10, 1_000
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
    #: The text of the value that the list begins with, and that value: a time, or a retry_count.
    since: str
    start: float | None
    #: The other way round than the state's list mostly is.
    reverse: bool
    tag: str | None

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Filter:
        """Reads the address, leaving out what makes no sense."""
        view = state_named(query.get("view", ""))
        retry_count, since = query.get("retry_count", "").strip(), query.get("from", "").strip()
        start = _start(STATES[view], since)
        return cls(
            view=view,
            pattern=query.get("pattern", "")[:LONGEST] or None,
            error=_error(query),
            retry_count=int(retry_count) if view == "retries" and _is_count(retry_count) else None,
            cursor=query.get("cursor") or None,
            since=since if start is not None else "",
            start=start,
            reverse=query.get("reverse") == "1",
            tag=query.get("tag") or None,
        )

    @property
    def state(self) -> State:
        """The state that is listed."""
        return STATES[self.view]

    @property
    def is_narrow(self) -> bool:
        """True when only some of the state's jobs are meant."""
        return self.is_search or self.retry_count is not None or self.start is not None

    @property
    def is_search(self) -> bool:
        """True when ids or errors are searched for, which gives no order."""
        return not all(one is None for one in (self.pattern, self.error, self.tag))

    @property
    def goes_down(self) -> bool:
        """True when the list begins with the highest: the latest, or most failures."""
        return self.reverse != self.state.is_reverse

    def read(self, previews: Previews) -> Page:
        low, high = (None, self.start) if self.goes_down else (self.start, None)
        return previews.page(
            self.view, cursor=self.cursor, limit=JOBS, pattern=self.pattern, error=self.error,
            retry_count=self.retry_count, low=low, high=high, reverse=self.reverse,
            tag=self.tag,
        )  # fmt: skip


@dataclass(frozen=True)
class ListedJob:
    job: JobPreview
    #: The first line of its error, else the beginning of its lowest payload, as far as those may be shown.
    preview: str
    #: The preview is the error.
    is_error: bool

    @property
    def mark(self) -> str:
        """Changes with what the list tells of the job, but for the error and the payloads themselves."""
        job = self.job
        return (
            f"{job.at:.6f} {job.retry_count} {job.payload_count} {job.crashes} {job.waits_for_own_run} {job.is_blocked}"
        )


def address_of(query: Mapping[str, str]) -> dict[str, str | None]:
    """The parameters that links of the page keep."""
    return {key: value for key, value in query.items() if key in ADDRESS} | {"error": _error(query)}


def jobs_of(view: View, visit: Visit, queue: str) -> dict[str, Any]:
    """What the page tells of jobs. A slow tick reads as much as a page: what has come, gone or changed since."""
    found = Filter.of(visit.query)
    previews = view.backend.previews(queue) if visit.reads else None
    is_running, page = found.view == "in_flight", Page([], None)
    if previews and not is_running and (visit.is_whole or not found.is_search):
        page = found.read(previews)
    rows = [_listed(job, payloads=view.payloads) for job in page.jobs]
    return {
        "states": STATES,
        "counts": counts_of(visit.snapshot.queues[queue]),
        "filter": found,
        "page": page,
        "rows": rows,
        "most_groups": GROUPS,
        "flying": running_jobs(previews, visit.snapshot, queue) if previews and is_running else [],
        "most_flying": SHOWN,
        "deeds": DEEDS,
        "buttons": () if view.read_only else actions_of(found.view),
        "result": result_of(visit.query),
        "undo": None if view.read_only else undo_of(visit.query),
        "undo_seconds": KEPT_SECONDS,
        "tag_counts": _tags(view, visit, queue),
        "backlogs": _backlogs(view, visit, queue),
        **_errors(None if found.is_narrow else previews, found),
    }


def _tags(view: View, visit: Visit, queue: str) -> Sequence[TagCount]:
    """The tags that most jobs have. Each shard is asked for its own, so of very many shards they are left out."""
    if not visit.is_whole or visit.snapshot.row(queue).shards_count > MOST_TAGGED_SHARDS:
        return ()
    return view.backend.tags(queue, TAGS)


def _backlogs(view: View, visit: Visit, queue: str) -> Sequence[TenantBacklog]:
    """Who has most in the queue, where it gives fair shares."""
    if not visit.is_whole or visit.snapshot.row(queue).shards_count > MOST_TAGGED_SHARDS:
        return ()
    return view.backend.tenants(queue, BACKLOGS)


def _errors(previews: Previews | None, found: Filter) -> dict[str, Any]:
    groups: Sequence[ErrorGroup] = ()
    sampled = total = 0
    if previews and found.view in {"retries", "morgue"}:
        groups, sampled, total = previews.errors(found.view)
    return {"groups": groups, "sampled": sampled, "total": total}


def _error(query: Mapping[str, str]) -> str | None:
    """Error group in the address: as a link has it, or as the search form carries it."""
    return from_field(query["error_field"]) if "error_field" in query else query.get("error")


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10  # noqa: PLR2004 (digits that Redis compares exactly)


def _start(state: State, text: str) -> float | None:
    """The value with which a list begins: a number of failures, or a time, as a field has it (UTC) or as a number."""
    if state.order == FAILURES:
        return int(text) - 1 if _is_count(text) else None
    with suppress(ValueError):
        return value if math.isfinite(value := float(text)) else None
    with suppress(ValueError, OverflowError):
        return datetime.datetime.fromisoformat(text).replace(tzinfo=datetime.UTC).timestamp()
    return None


def _listed(job: JobPreview, *, payloads: bool) -> ListedJob:
    error = main_line(job.error)
    if error:
        return ListedJob(job, printable(error, PREVIEW), is_error=True)
    lowest = job.payloads[0] if job.payloads and payloads else None
    text = lowest.data[: 4 * PREVIEW].decode("utf-8", "replace") if lowest else ""
    return ListedJob(job, printable(text, PREVIEW), is_error=False)
