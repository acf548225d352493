"""Replies of the API, and what they are made of."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from lowkiq.admin.alerts.alert import Alert
from lowkiq.admin.beats.dumps import Dump
from lowkiq.admin.beats.hands import HandName
from lowkiq.admin.beats.health import NodeHealth
from lowkiq.admin.beats.owners import Owner
from lowkiq.admin.jobs.bulks import Bulk
from lowkiq.admin.jobs.failures import ErrorGroup
from lowkiq.admin.limits import Limit
from lowkiq.admin.metrics import ShardMetrics
from lowkiq.admin.past.history import Point
from lowkiq.admin.past.incidents import Incident
from lowkiq.admin.past.statistics import Statistics
from lowkiq.admin.why.reasons import Reason as Why
from lowkiq.web.snapshot import QueueRow


class Failure(msgspec.Struct, frozen=True):
    """Reason why a request was refused."""

    error: Annotated[str, Meta(description="What is wrong, and what to do.")]


class Stats(msgspec.Struct, frozen=True):
    """The numbers that the original Lowkiq gives of a queue."""

    length: int
    morgue_length: int
    lag: Annotated[float, Meta(description="Seconds by which the oldest due job is late.")]


class StatsReply(msgspec.Struct, frozen=True):
    """Exactly what the original Lowkiq answers."""

    total: Annotated[Stats, Meta(description="Sums; the lag is the highest.")]
    by_worker: Annotated[
        dict[str, Stats],
        Meta(description="By the worker's class; under its own name, a queue whose worker this application lacks."),
    ]


class NodesReply(msgspec.Struct, frozen=True):
    """The health of all nodes."""

    nodes: Annotated[list[NodeHealth], Meta(description="Heartbeats, by node number.")]
    late: Annotated[list[str], Meta(description="Nodes of which two beats were lost.")]
    missing: Annotated[list[int], Meta(description="Numbers of N from which no beat comes.")]
    doubled: Annotated[list[int], Meta(description="Numbers that several nodes have: the second stands by.")]
    unowned: Annotated[list[ShardMetrics], Meta(description="Shards with due jobs whose lease nobody has.")]
    is_well: Annotated[bool, Meta(description="Whether there is no alert that nobody has acknowledged.")]
    alerts: Annotated[list[Alert], Meta(description="What is wrong with nodes, queues and Redis, the worst first.")]


class AlertRow(Alert, frozen=True, kw_only=True):
    """One thing that is wrong: what, since when, how bad, and the next step."""

    key: Annotated[str, Meta(description="Its name, the same for as long as it lasts.")]
    queue: Annotated[str, Meta(description='The queue that it is about; "" if it is about none.')]
    text: Annotated[str, Meta(description="`says` and `do` as sentences.")]


class AcknowledgedReply(msgspec.Struct, frozen=True):
    """What was acknowledged."""

    acknowledged: Annotated[int, Meta(ge=0, description="Alerts that were there.")]


class AlertsReply(msgspec.Struct, frozen=True):
    """The list that the page, `lowkiq alerts` and the doctor have too."""

    is_well: Annotated[bool, Meta(description="Whether there is no alert that nobody has acknowledged.")]
    at: Annotated[float, Meta(description="Redis's time.")]
    alerts: Annotated[list[AlertRow], Meta(description="The worst first.")]


class QueuesReply(msgspec.Struct, frozen=True):
    """All queues that Redis knows."""

    queues: list[QueueRow]


class OwnersReply(msgspec.Struct, frozen=True):
    """The shards of a queue: which node has each, and why."""

    queue: str
    owners: Annotated[list[Owner], Meta(description="By number.")]


class Errors(msgspec.Struct, frozen=True):
    """The errors of a queue's retries by kind, from a sample."""

    groups: Annotated[list[ErrorGroup], Meta(description="The largest first.")]
    sampled: Annotated[int, Meta(description="Errors looked at.")]
    total: Annotated[int, Meta(description="Errors there are.")]


class FailuresReply(Errors, frozen=True):
    """The failures of a queue by kind."""

    queue: str
    view: str


class QueueReply(QueueRow, frozen=True):
    """A queue and its shards."""

    shards: list[ShardMetrics]
    limit: Annotated[Limit | None, Meta(description="Of a queue with max_running: who runs it, and who waits.")] = None
    errors: Annotated[Errors | None, Meta(description="With errors=1.")] = None


class Payload(msgspec.Struct, frozen=True):
    """A payload as it may be shown."""

    score: float
    size: Annotated[int, Meta(description="Bytes.")]
    is_cut: Annotated[bool, Meta(description="Whether only its beginning is shown, as a text.")]
    is_text: Annotated[bool, Meta(description="Whether `value` is its raw text, as it is not JSON or was cut.")]
    is_hidden: Annotated[bool, Meta(description="Whether this view shows no payloads: `value` is null.")]
    value: Any


class JobRow(msgspec.Struct, frozen=True):
    """A job in one of its places."""

    id: str
    shard: int
    where: Literal["queue", "claim", "morgue"]
    at: Annotated[float, Meta(description="Unix time when it is due; of the morgue, when it got there.")]
    due_in: Annotated[float | None, Meta(description="Seconds until then, negative if late; null in the morgue.")]
    retry_count: Annotated[
        int,
        Meta(
            description="-1: it has not failed; 0: once; 1: twice … With the failure that would make it its worker's "
            "max_retry_count it goes to the morgue."
        ),
    ]
    error: Annotated[str | None, Meta(description="The last error: a line with its type and message.")]
    crashes: Annotated[int, Meta(description="Deaths of its node or process that are held against it.")]
    waits_for_own_run: Annotated[
        bool,
        Meta(description="Whether it is queued while its id runs: it follows that run, and is not due before `at`."),
    ]
    is_blocked: Annotated[
        bool, Meta(description="Whether it has failed too often, and waits for a person since `at`; `due_in` is null.")
    ]
    payload_count: int
    payloads: Annotated[list[Payload], Meta(description="Those of the lowest scores; of a list, the first.")]
    tags: list[str]
    owner: Annotated[str | None, Meta(description="The node that has the shard, if any.")]
    thread: Annotated[
        str | None,
        Meta(description='Of a job in flight: the thread that performs it, or "event loop", if known.'),
    ]
    seconds: Annotated[float | None, Meta(description="For how long it has, as of the node's last beat.")]
    progress: Annotated[float | None, Meta(description="How far it is, from 0 to 1, if it has told.")]
    note: Annotated[str, Meta(description="The same in words.")]
    to_stop_seconds: Annotated[
        float | None,
        Meta(description="For how long it has been asked to stop, by a cancel or as it is over its perform_timeout."),
    ]
    pid: Annotated[int | None, Meta(description="The process that performs it, if that is not the node.")]
    traceback: Annotated[
        str | None,
        Meta(description="Of one job: where the last error was raised, as far as it is kept; null in lists."),
    ] = None
    why: Annotated[
        Why | None, Meta(description="Of one job, and of a search: why it does not run just now; null in lists.")
    ] = None


class JobsReply(msgspec.Struct, frozen=True):
    """A page of jobs."""

    jobs: list[JobRow]
    next: Annotated[str | None, Meta(description="The next page's cursor, null at the end.")]
    scanned: Annotated[int | None, Meta(description="Of a search: ids looked at for this page.")]


class JobReply(msgspec.Struct, frozen=True):
    """A job, wherever it is: an id can be queued, in flight and in the morgue at once."""

    queue: str
    id: str
    shard: int
    places: list[JobRow]
    ahead: Annotated[
        int | None,
        Meta(description="Queued jobs of its shard that are due before it; null if it waits for its own run."),
    ]
    owner: Annotated[str | None, Meta(description="The node that has the shard, if any.")]
    due_in: Annotated[float | None, Meta(description="Seconds until it is due, if queued; negative if late.")]


class FoundJobRow(JobRow, frozen=True, kw_only=True):
    """A job in one of its places, in one of the queues."""

    queue: str
    state: Annotated[str, Meta(description="Waiting, Scheduled, Running, Retrying, Blocked, Held or Morgue.")]


class SearchReply(msgspec.Struct, frozen=True):
    """A page of what was found."""

    jobs: list[FoundJobRow]
    next: Annotated[str | None, Meta(description="The next page's cursor, null at the end.")]
    scanned: Annotated[int | None, Meta(description="Of a glob: about how many ids were looked at for this page.")]


class HistoryReply(msgspec.Struct, frozen=True):
    """A series, oldest first. Gauges are the highest of a step, counters as of its end."""

    queue: str | None
    span: str
    step: Annotated[int, Meta(description="Seconds between points.")]
    points: list[Point]


class IncidentsReply(msgspec.Struct, frozen=True):
    """A page of incidents, the newest first."""

    incidents: list[Incident]
    next: Annotated[str | None, Meta(description="The next page's cursor, null at the end.")]


class HandQuestion(msgspec.Struct, frozen=True):
    """What a node is asked for."""

    action: Annotated[
        HandName,
        Meta(
            description="quiet: take no new jobs. resume: take jobs again. restart: a successor takes over; its "
            "supervisor does that. dump: tell what all threads do."
        ),
    ]


class DumpsReply(msgspec.Struct, frozen=True):
    """The last dumps, the newest first."""

    dumps: list[Dump]


class DumpReply(msgspec.Struct, frozen=True):
    """A dump with its text."""

    dump: Dump
    text: str


class StatisticsReply(msgspec.Struct, frozen=True):
    """How long jobs of a queue waited and ran."""

    queue: str
    days: Annotated[list[Statistics], Meta(description="Those on which anything was counted, the oldest first.")]


class BulksReply(msgspec.Struct, frozen=True):
    """Bulks, running and lately ended."""

    bulks: list[Bulk]


class Moved(msgspec.Struct, frozen=True, omit_defaults=True):
    """Result of an action on ids."""

    moved: Annotated[int, Meta(description="Jobs moved or deleted; those not there any more are not counted.")]
    undo: Annotated[str | None, Meta(description="Of a deletion that keeps them: what undoes it.")] = None


class PauseReply(msgspec.Struct, frozen=True):
    """A paused queue. Nothing more of it is claimed."""

    since: Annotated[float, Meta(description="Unix time since when it is paused.")]
    confirmed: Annotated[bool, Meta(description="Whether nothing more starts. If not, ask again.")]
    unconfirmed: Annotated[
        dict[str, list[int]],
        Meta(description="Node → shards of which it has not confirmed that: what it had claimed may still start."),
    ]


class Resumed(msgspec.Struct, frozen=True):
    """Result of ending a pause."""

    resumed: Annotated[int, Meta(description="Shards that were paused.")]


class SettingRow(msgspec.Struct, frozen=True):
    """An option of a queue that can be set while nodes run."""

    value: Annotated[int | float | str | None, Meta(description="What nodes go by.")]
    code: Annotated[
        int | float | str | None, Meta(description="What the code says, as far as this application has the worker.")
    ]
    is_set: Annotated[bool, Meta(description="Whether somebody has set it; if not, nodes go by their code.")]
    who: str = ""
    at: Annotated[float | None, Meta(description="Unix time at which it was set.")] = None


class SettingsReply(msgspec.Struct, frozen=True):
    """Options of a queue that can be set while nodes run."""

    queue: str
    settings: dict[str, SettingRow]
    rated: Annotated[int, Meta(description="Jobs that wait for their rate: each is scheduled for its own time.")] = 0
    rated_until: Annotated[float | None, Meta(description="Unix time of the last of them.")] = None


class Matches(msgspec.Struct, frozen=True):
    """Result of a dry run."""

    matches: int
    at_least: Annotated[bool, Meta(description="Whether counting was cut short, and there may be more.")]


class TokenReply(msgspec.Struct, frozen=True):
    """The token that a write needs."""

    token: str
