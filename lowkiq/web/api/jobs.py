"""Jobs in the API: pages of them, and one wherever it is; and the tags and tenants that most of them have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, cast

import msgspec
from msgspec import Meta

from lowkiq.admin.beats.health import ThreadHealth, batch_of
from lowkiq.admin.jobs.finder import GONE, FoundJob
from lowkiq.admin.jobs.previews import Page
from lowkiq.admin.jobs.reader import JobPreview, PayloadPreview
from lowkiq.codec import encodable
from lowkiq.errors import short
from lowkiq.failure import main_line
from lowkiq.web.api.input import Rejected
from lowkiq.web.api.operation import NO_QUEUE, ApiCall, operation
from lowkiq.web.api.replies import FoundJobRow, JobReply, JobRow, JobsReply, Payload, SearchReply
from lowkiq.web.api.requests import JobQuery, JobsQuery, SearchQuery
from lowkiq.web.render.payloads import load_shallow
from lowkiq.web.snapshot import Snapshot
from lowkiq.web.view import View

#: Parameters that search, or cut a range out of an order.
_SEARCHES: Final = ("pattern", "error", "tag", "retry_count")
_RANGES: Final = ("min", "max", "reverse")
#: What a thread tells of a job that it does not perform.
_IDLE = ThreadHealth(name="")


@operation(
    "GET",
    "/api/v1/queues/{queue}/jobs",
    description="The queue is never read as a whole: with pattern or error a page looks at a bounded number of "
    "ids, so it can be empty and still have a next one. An error's text comes from the queue's errors.",
    query=JobsQuery,
    refusals=NO_QUEUE,
)
def jobs(call: ApiCall, snapshot: Snapshot) -> JobsReply:
    """Jobs of a queue, a page at a time."""
    query: JobsQuery = call.query
    _require_sense(query)
    page = _page(call, query)
    rows = [msgspec.structs.replace(row, traceback=None) for row in _rows(call, snapshot, page.jobs)]
    return JobsReply(rows, page.next, page.scanned)


@operation(
    "GET",
    "/api/v1/queues/{queue}/job",
    query=JobQuery,
    refusals={404: "There is no such queue, or no such job in it: it may be done."},
)
def job(call: ApiCall, snapshot: Snapshot) -> JobReply:
    """A job wherever it is, with its payloads and why it waits."""
    query: JobQuery = call.query
    previews, ahead = _job(call, query.id)
    if not previews:
        raise Rejected(404, f"no job {short(query.id)} in queue {call.queue}: {GONE}")
    found = [FoundJob(call.queue, preview) for preview in previews]
    reasons = call.backend.reasons(snapshot.around, found)
    rows = zip(_rows(call, snapshot, previews), reasons, strict=True)
    places = [msgspec.structs.replace(row, why=reason) for row, reason in rows]
    return JobReply(
        call.queue,
        query.id,
        places[0].shard,
        places,
        ahead,
        owner=places[0].owner,
        due_in=next((place.due_in for place in places if place.where == "queue"), None),
    )


@operation(
    "GET",
    "/api/v1/search",
    name="search",
    description="An exact id is looked for wherever a job can be; a glob among queued jobs and the morgue, a bounded "
    "number of ids a page, so that a page can be empty and still have a next one.",
    query=SearchQuery,
)
def search(call: ApiCall, snapshot: Snapshot) -> SearchReply:
    """Jobs by their ids, over all queues."""
    query: SearchQuery = call.query
    try:
        found = call.backend.finder().find(query.q, query.cursor, query.limit)
    except ValueError as error:
        raise Rejected(400, f"parameter cursor: {error}") from error
    reasons = call.backend.reasons(snapshot.around, found.jobs)
    rows = [
        FoundJobRow(
            **msgspec.structs.asdict(_row(call.view, snapshot, one.queue, one.job)) | {"why": reason},
            queue=one.queue,
            state=reason.state,
        )
        for one, reason in zip(found.jobs, reasons, strict=True)
    ]
    return SearchReply(rows, found.next, found.scanned)


class TagsQuery(msgspec.Struct, frozen=True):
    """Choice of tags."""

    limit: Annotated[int, Meta(ge=1, le=100, description="At most so many.")] = 50


class TagRow(msgspec.Struct, frozen=True):
    """A tag, and how many ids have it: queued, in hand or in the morgue."""

    tag: str
    ids: int


class TagsReply(msgspec.Struct, frozen=True):
    """The tags that most ids of a queue have."""

    queue: str
    tags: list[TagRow]


@operation(
    "GET",
    "/api/v1/queues/{queue}/tags",
    description="Of each shard its hundred most frequent tags are looked at, and of those the counts are exact.",
    query=TagsQuery,
    refusals=NO_QUEUE,
)
def tags(call: ApiCall) -> TagsReply:
    """The tags that most ids of a queue have, the most frequent first."""
    return TagsReply(call.queue, [TagRow(*one) for one in call.backend.tags(call.queue, call.query.limit)])


class TenantsQuery(msgspec.Struct, frozen=True):
    """Choice of tenants."""

    limit: Annotated[int, Meta(ge=1, le=100, description="At most so many.")] = 10


class TenantRow(msgspec.Struct, frozen=True):
    """A tenant, and how many ids of it are queued."""

    tenant: str
    ids: int


class TenantsReply(msgspec.Struct, frozen=True):
    """The tenants with the largest backlogs of a queue."""

    queue: str
    tenants: list[TenantRow]


@operation(
    "GET",
    "/api/v1/queues/{queue}/tenants",
    description="Tenants are those of the worker's fair_by. They are found by a hundred ids of each shard, taken at "
    "random, in which those who have many are many; their numbers are exact.",
    query=TenantsQuery,
    refusals=NO_QUEUE,
)
def tenants(call: ApiCall) -> TenantsReply:
    """Whose backlog is the largest in a queue that gives fair shares."""
    return TenantsReply(call.queue, [TenantRow(*one) for one in call.backend.tenants(call.queue, call.query.limit)])


def _rows(call: ApiCall, snapshot: Snapshot, previews: Sequence[JobPreview]) -> list[JobRow]:
    return [_row(call.view, snapshot, call.queue, preview) for preview in previews]


def _row(view: View, snapshot: Snapshot, queue: str, preview: JobPreview) -> JobRow:
    """A preview with what the snapshot knows of its shard."""
    shard, batches = snapshot.shard(queue, preview.shard), snapshot.running(queue, preview.shard)
    running = batch_of(preview.id, batches) if preview.where == "claim" else None
    thread = running.thread if running and running.has(preview.id) else _IDLE
    return JobRow(
        id=encodable(preview.id),  # JSON has no way to name bytes that are no UTF-8
        shard=preview.shard,
        where=cast(Any, preview.where),
        at=preview.at,
        due_in=None if preview.where == "morgue" or preview.is_blocked else preview.at - snapshot.at,
        retry_count=preview.retry_count,
        error=None if preview.error is None else main_line(preview.error),
        crashes=preview.crashes,
        waits_for_own_run=preview.waits_for_own_run,
        is_blocked=preview.is_blocked,
        payload_count=preview.payload_count,
        payloads=[payload(view, one) for one in preview.payloads],
        tags=list(preview.tags),
        owner=shard.owner if shard else None,
        thread=thread.name or None,
        seconds=thread.seconds if thread.name else None,
        progress=thread.progress,
        note=thread.note,
        to_stop_seconds=thread.to_stop_seconds,
        pid=thread.pid,
        traceback=preview.traceback,
    )


def payload(view: View, preview: PayloadPreview) -> Payload:
    """A payload as this view may show it."""
    is_cut = len(preview.data) < preview.size
    if not view.payloads:
        value, is_text = msgspec.Raw(b"null"), False
    elif is_cut or (json := _as_json(view, preview.data)) is None:
        value, is_text = msgspec.Raw(msgspec.json.encode(preview.data.decode("utf-8", "replace"))), True
    else:
        value, is_text = json, False
    return Payload(preview.score, preview.size, is_cut, is_text, is_hidden=not view.payloads, value=value)


def _as_json(view: View, data: bytes) -> msgspec.Raw | None:
    try:
        return msgspec.Raw(msgspec.json.encode(load_shallow(data, view.app.settings.load_payload)))
    except BaseException:  # noqa: BLE001 (load_payload is the user's, and so is what it makes)
        return None


def _require_sense(query: JobsQuery) -> None:
    """Refuses what would be silently ignored."""
    given = [name for name in (*_SEARCHES, *_RANGES, "cursor") if getattr(query, name) not in {None, False}]
    if query.view == "in_flight" and given:
        raise Rejected(400, f"parameter {given[0]} can't be used with view=in_flight, which is one page of all")
    if query.retry_count is not None and query.view != "retries":
        raise Rejected(400, f"parameter retry_count can't be used with view={query.view}, only with view=retries")
    ranges = [name for name in ("retry_count", *_RANGES) if name in given]
    if ranges and any(text is not None for text in (query.pattern, query.error, query.tag)):
        raise Rejected(400, f"parameter {ranges[0]} can't be used with pattern, error or tag: give one of them")


def _page(call: ApiCall, query: JobsQuery) -> Page:
    previews = call.backend.previews(call.queue)
    if query.view == "in_flight":
        return Page(previews.in_flight(query.limit), None)
    words = msgspec.structs.asdict(query)
    try:
        low, high = (bound and bound.strip() for bound in (words.pop("min"), words.pop("max")))
        return previews.page(low=low, high=high, **words)
    except ValueError as error:
        raise Rejected(400, f"parameter cursor: {error}") from error


def _job(call: ApiCall, id: str) -> tuple[list[JobPreview], int | None]:
    previews = call.backend.previews(call.queue)
    try:
        found = previews.job(id)
    except ValueError as error:
        raise Rejected(400, f"parameter id: {error}") from error
    return found, previews.ahead(id) if any(preview.where == "queue" for preview in found) else None
