"""Requests to the API. The OpenAPI document is made from these types, those of replies.py, and their descriptions."""

from __future__ import annotations

import datetime
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from lowkiq.admin.alerts.acknowledging import MUTED_AT_MOST
from lowkiq.admin.alerts.alert import Severity
from lowkiq.admin.jobs.actions import ActionName
from lowkiq.admin.jobs.deeds import DEEDS
from lowkiq.admin.jobs.finder import LONGEST
from lowkiq.admin.jobs.search import View
from lowkiq.admin.past.statistics import KEPT_DAYS
from lowkiq.admin.pauses import MOST_WHY
from lowkiq.job import LONGEST_TAG
from lowkiq.options import SETTABLE

#: Jobs on a page, at most.
MAX_LIMIT: Final = 100
#: Ids in one action.
MAX_IDS: Final = 1_000
#: The largest number that any client of JSON holds exactly.
MAX_COUNT: Final = 2**53
#: Longer than any id, cursor or group of errors can be.
MAX_CHARS: Final = 65_536
#: Never empty: a script whose variable is empty must not act on all there is.
Text = Annotated[str, Meta(min_length=1, max_length=MAX_CHARS)]
#: A glob of ids: Redis compares it with hundreds at a time, and answers nobody else meanwhile.
Pattern = Annotated[str, Meta(min_length=1, max_length=LONGEST, description='A glob of ids, e.g. "order-*".')]
Count = Annotated[int, Meta(ge=0, le=MAX_COUNT)]
#: Seconds since the Unix epoch.
Time = Annotated[float, Meta(ge=0, le=1e11)]
#: Bound of a range, as Redis and `queries` have it: 5, "(5" for beyond 5, "-inf", "+inf". A plus may come as a blank.
Bound = Annotated[
    str, Meta(max_length=40, pattern=r"^([(]?[-+]?[0-9]{1,15}([.][0-9]{1,20})?([eE][-+]?[0-9]{1,2})?|[-+ ]?inf)$")
]
Tag = Annotated[str, Meta(min_length=1, max_length=LONGEST_TAG)]
#: An id, as far as a schema can tell: what else it must be is said by who looks at it.
Id = Annotated[str, Meta(extra_json_schema={"minLength": 1})]


class JobsQuery(msgspec.Struct, frozen=True):
    """Choice of jobs of a queue."""

    view: Annotated[
        Literal["due", "waiting", "scheduled", "retries", "blocked", "held", "in_flight", "morgue"],
        Meta(
            description="due: all that are queued, the first due first: waiting (due by now, or for their own run) and "
            "scheduled (due later) together, failed ones among both, then blocked ones. retries: those that have "
            "failed, most failures first. blocked: those that wait for a person, for longest first. held: those that "
            "somebody keeps from running, the first held first. in_flight: in the hands of nodes. morgue: the dead, "
            "the newest first."
        ),
    ] = "due"
    pattern: Annotated[Pattern | None, Meta(description='A glob of ids, e.g. "order-*". The order is then lost.')] = (
        None
    )
    error: Annotated[Text | None, Meta(description="The text of a group of errors. The order is then lost.")] = None
    tag: Annotated[Tag | None, Meta(description="A tag of the jobs. The order is then lost.")] = None
    retry_count: Annotated[
        Annotated[int, Meta(ge=0, le=1_000_000)] | None,
        Meta(description="0: jobs that have failed once, 1: twice … Only with view=retries, and no search."),
    ] = None
    min: Annotated[
        Bound | None,
        Meta(
            description="Lowest due time (Unix), retry_count or time in the morgue: what the view is ordered by. As in "
            "queries, (5 is more than 5, and -inf the lowest of all."
        ),
    ] = None
    max: Annotated[Bound | None, Meta(description="The highest: (5 is less than 5, +inf the highest of all.")] = None
    reverse: Annotated[bool, Meta(description="Whether the order is the other way round.")] = False
    cursor: Annotated[Text | None, Meta(description="`next` of the page before.")] = None
    limit: Annotated[int, Meta(ge=1, le=MAX_LIMIT, description="Jobs on the page; a search may give some more.")] = 25


class SearchQuery(msgspec.Struct, frozen=True):
    """Choice of jobs of all queues."""

    q: Annotated[Text, Meta(description='An exact id, or a glob, e.g. "order-*".')]
    cursor: Annotated[Text | None, Meta(description="`next` of the page before.")] = None
    limit: Annotated[int, Meta(ge=1, le=MAX_LIMIT, description="Jobs on the page; a glob may give some more.")] = 50


class UndoRequest(msgspec.Struct, frozen=True):
    """Deletion that is to be undone."""

    undo: Annotated[Text, Meta(description="What the deletion was answered with.")]


class PauseRequest(msgspec.Struct, frozen=True):
    """Pause of a queue."""

    reason: Annotated[
        Annotated[str, Meta(max_length=MOST_WHY)], Meta(description="For all who see that it is paused.")
    ] = ""
    wait: Annotated[
        float,
        Meta(ge=0, le=10, description="Seconds to wait for nodes to confirm that nothing more starts."),
    ] = 2.0


class AcknowledgeRequest(msgspec.Struct, frozen=True):
    """Alerts that somebody has seen."""

    keys: Annotated[list[str], Meta(min_length=1, max_length=500, description="As getAlerts has them.")]
    seconds: Annotated[
        Annotated[float, Meta(gt=0, le=MUTED_AT_MOST)] | None,
        Meta(description="How long they are muted, also if they begin again; null: for as long as each lasts."),
    ] = None
    note: Annotated[Annotated[str, Meta(max_length=MOST_WHY)], Meta(description="For all who see it.")] = ""


_Option = Annotated[str, Meta(extra_json_schema={"enum": [*SETTABLE]})]


class SettingsRequest(msgspec.Struct, frozen=True):
    """Options of a queue that are to be set, or to be those of the code again."""

    set: Annotated[
        dict[_Option, int | float | str | None], Meta(description=f"Name → value: {', '.join(SETTABLE)}.")
    ] = {}
    unset: Annotated[list[_Option], Meta(max_length=100, description="Names.")] = []


class JobQuery(msgspec.Struct, frozen=True):
    """Choice of a job."""

    id: Annotated[Text, Meta(description="The job's id, any text.")]


class QueueQuery(msgspec.Struct, frozen=True):
    """Choice of what to tell of a queue."""

    errors: Annotated[bool, Meta(description="Whether to group the errors of its retries, which costs a little.")] = (
        False
    )


class HistoryQuery(msgspec.Struct, frozen=True):
    """Choice of a history."""

    span: Annotated[Literal["5m", "1h", "1d", "30d", "365d"], Meta(description="How far back.")] = "1h"
    queue: Annotated[Text | None, Meta(description="A queue's name; without one, all of them together.")] = None


class AlertsQuery(msgspec.Struct, frozen=True):
    """Choice of alerts."""

    queue: Annotated[Text | None, Meta(description="Only those about this queue, or that it is late by.")] = None
    severity: Annotated[Severity | None, Meta(description="Only those that are so bad.")] = None


class StatisticsQuery(msgspec.Struct, frozen=True):
    """Choice of days."""

    day: Annotated[datetime.date | None, Meta(description="One day, in UTC by Redis's clock.")] = None
    days: Annotated[
        Annotated[int, Meta(ge=1, le=KEPT_DAYS)] | None, Meta(description="The last so many, with today. Default: 1.")
    ] = None


class All(msgspec.Struct, frozen=True):
    """Every job of a view that matches."""

    view: View
    pattern: Pattern | None = None
    error: Annotated[Text | None, Meta(description="The text of a group of errors.")] = None
    tag: Annotated[Tag | None, Meta(description="A tag of the jobs.")] = None


class ActionRequest(msgspec.Struct, frozen=True):
    """Action on jobs: on `ids` of a `view`, or on `all` that match."""

    action: Annotated[
        ActionName,
        Meta(
            description="; ".join(
                f"{name} (of {', '.join(deed.scripts)}): they will {deed.will}" for name, deed in DEEDS.items()
            )
        ),
    ]
    ids: Annotated[
        Annotated[list[Id], Meta(min_length=1, max_length=MAX_IDS)] | None,
        Meta(description="The jobs. Done at once; the reply says how many were moved."),
    ] = None
    view: Annotated[
        View | None,
        Meta(description="Where the ids are. Default: the first of the views that the action is of."),
    ] = None
    reason: Annotated[
        Annotated[str, Meta(max_length=MOST_WHY)], Meta(description="Of hold: for all who see that they are held.")
    ] = ""
    all: Annotated[All | None, Meta(description="Done in the background; the reply is the bulk.")] = None
    expected: Annotated[
        Count | None,
        Meta(description="With `all`: refuse with 409, and do nothing, if more than so many jobs match."),
    ] = None
    dry_run: Annotated[bool, Meta(description="With `all`: only say how many match.")] = False
    keep: Annotated[
        bool,
        Meta(description="With `ids` and delete: keep them for a minute, for an undo, unless they are too many."),
    ] = False
    out_of_order: Annotated[
        bool,
        Meta(description="With `ids` and revive: also if they run behind newer payloads of their ids then, else 409."),
    ] = False


class FailuresQuery(msgspec.Struct, frozen=True):
    """Choice of failures."""

    view: Annotated[
        Literal["retries", "morgue"],
        Meta(description="retries: queued jobs that have failed. morgue: the dead."),
    ] = "retries"


class IncidentsQuery(msgspec.Struct, frozen=True):
    """Choice of incidents."""

    queue: Annotated[Text | None, Meta(description="Only those of a queue.")] = None
    node: Annotated[Text | None, Meta(description="A node's name.")] = None
    kind: Annotated[Text | None, Meta(description="One of the kinds that incidents have.")] = None
    who: Annotated[Text | None, Meta(description="A part of the name of somebody whose deeds are meant.")] = None
    since: Annotated[Time | None, Meta(description="Unix time.")] = None
    until: Annotated[Time | None, Meta(description="Unix time.")] = None
    cursor: Annotated[Text | None, Meta(description="`next` of the page before.")] = None
    limit: Annotated[int, Meta(ge=1, le=1_000, description="Incidents on the page.")] = 100
