"""The API's recurring jobs: which there are, and what can be done about one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from lowkiq.admin.pauses import MOST_WHY, Pause
from lowkiq.admin.recurring import RecurringJob
from lowkiq.codec import encodable
from lowkiq.errors import BeingResharded, LowkiqError, UnknownQueue
from lowkiq.recurrence import BACKLOG, LONGEST, MOST_BACKLOG, SHORTEST, Missed, Rule
from lowkiq.web.api.input import Rejected
from lowkiq.web.api.operation import NO_QUEUE, ApiCall, operation
from lowkiq.web.api.requests import Id
from lowkiq.web.backend import RecurringAction


class RecurringQuery(msgspec.Struct, frozen=True):
    """Of which queue, and how many."""

    queue: Annotated[str | None, Meta(description="All queues without it.")] = None
    limit: Annotated[int, Meta(ge=1, le=1_000, description="Jobs, at most.")] = 200


class RecurringRow(msgspec.Struct, frozen=True):
    """A job that recurs."""

    queue: str
    id: str
    words: Annotated[str, Meta(description="When it recurs, for people.")]
    rule: Annotated[Rule, Meta(description="The same: seconds, or the five fields of cron.")]
    origin: Annotated[Literal["code", "api"], Meta(description="The code declares it, or somebody has set it.")]
    next_at: Annotated[float | None, Meta(description="Unix time of its next run; null while it is paused.")]
    last_at: Annotated[float | None, Meta(description="For when it was run last; null: it was not yet.")]
    paused: Annotated[Pause | None, Meta(description="Since when, by whom and why it is paused.")]


class RecurringReply(msgspec.Struct, frozen=True):
    """Jobs that recur."""

    jobs: Annotated[list[RecurringRow], Meta(description="Those that run next first; those that are paused last.")]
    count: Annotated[int, Meta(description="How many recur. Where that is more, those that are paused are left out.")]


class RecurringRequest(msgspec.Struct, frozen=True):
    """What a job that recurs is to do."""

    id: Id
    action: RecurringAction
    reason: Annotated[str, Meta(max_length=MOST_WHY, description="Of a pause.")] = ""


class RecurringDone(msgspec.Struct, frozen=True):
    """Result of an action."""

    changed: Annotated[bool, Meta(description="False: nothing recurs as that id, or there was nothing to change.")]


_Seconds = Annotated[float, Meta(extra_json_schema={"minimum": SHORTEST, "maximum": LONGEST})]


class RecurringRule(msgspec.Struct, frozen=True):
    """When a job is to recur."""

    id: Id
    every: Annotated[_Seconds | str, Meta(description='Seconds, "15m", or the five fields of cron.')]
    payload: Annotated[Any, Meta(description="As JSON; without it, it stays as it is.")] = msgspec.UNSET
    offset: Annotated[float, Meta(description="Seconds by which an interval is shifted.")] = 0.0
    tz: Annotated[str | None, Meta(description="The time zone of cron's fields; UTC without it.")] = None
    missed: Annotated[Missed, Meta(description="What becomes of times that nobody could fire.")] = "merge"
    backlog: Annotated[int, Meta(ge=1, le=MOST_BACKLOG, description="How many are made up for, with `all`.")] = BACKLOG


@operation("GET", "/api/v1/recurring", query=RecurringQuery, refusals=NO_QUEUE)
def recurring(call: ApiCall) -> RecurringReply:
    """Jobs that recur, of one queue or of all."""
    query: RecurringQuery = call.query
    jobs, count = call.backend.recurring(query.queue, query.limit)
    return RecurringReply([_row(job) for job in jobs], count)


@operation(
    "POST",
    "/api/v1/queues/{queue}/recurring",
    description="To run one now takes a view that has the worker. One that was removed stays away until the code says "
    "something else of it.",
    body=RecurringRequest,
    refusals=NO_QUEUE,
    examples={"pause": {"id": "report", "action": "pause", "reason": "it is summer"}},
)
def act_on_recurring(call: ApiCall) -> RecurringDone:
    """Pause, resume, run now or remove a job that recurs."""
    body, act = call.body, call.backend.act_on_recurring
    return _done(lambda: act(call.queue, body.id, body.action, call.who, body.reason))


@operation(
    "POST",
    "/api/v1/queues/{queue}/recurring/set",
    description="It takes a view that has the worker, which knows how payloads are written.",
    body=RecurringRule,
    refusals=NO_QUEUE,
    examples={"mornings": {"id": "eu", "every": "0 6 * * 1-5", "tz": "Europe/Berlin", "payload": {"of": "eu"}}},
)
def set_recurring(call: ApiCall) -> RecurringDone:
    """Have a job recur, or change when it does."""
    options = msgspec.structs.asdict(call.body)
    return _done(lambda: call.backend.set_recurring(call.queue, who=call.who, **options))


def _done(act: Callable[[], bool]) -> RecurringDone:
    """What the backend has done. Raises Rejected with its reason."""
    try:
        return RecurringDone(act())
    except (BeingResharded, UnknownQueue):
        raise
    except (LowkiqError, ValueError) as error:
        raise Rejected(400, str(error)) from error


def _row(job: RecurringJob) -> RecurringRow:
    rule = job.rule
    return RecurringRow(
        job.queue, encodable(job.id), rule.words, rule, job.origin, job.next_at, job.last_at, job.paused
    )
