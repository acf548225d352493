"""The API's writes to the flow of a queue: pausing and resuming it, its live settings, and its reshard."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from lowkiq.admin.resharding import read_progress
from lowkiq.queue.call import redis_time
from lowkiq.queue.keys import MOST_SHARDS
from lowkiq.queue.rates import read_waiting
from lowkiq.web.api.operation import NO_QUEUE, ApiCall, operation
from lowkiq.web.api.replies import PauseReply, Resumed, SettingRow, SettingsReply
from lowkiq.web.api.requests import PauseRequest, SettingsRequest
from lowkiq.web.live_options import options_of
from lowkiq.web.snapshot import Snapshot


class ReshardRequest(msgspec.Struct, frozen=True):
    """Another number of shards for a queue."""

    shards: Annotated[int, Meta(ge=1, le=MOST_SHARDS)]


class ReshardReply(msgspec.Struct, frozen=True):
    """A reshard of a queue that goes on, or was its last."""

    before: Annotated[int, Meta(description="Shards that the queue had before.")]
    shards: int
    percent: Annotated[int, Meta(description="How much of it is done, 0 to 100.")]
    moved: Annotated[int, Meta(description="Jobs that have moved.")]
    left: Annotated[int, Meta(description="Jobs that are left in old shards.")]
    is_over: bool
    began_at: Annotated[float, Meta(description="Unix time.")]
    seconds: Annotated[float, Meta(description="Seconds that it has taken until now, or took.")]
    stands_for: Annotated[float, Meta(description="Seconds for which nothing was moved.")]
    who: str
    node: Annotated[str, Meta(description="The node that moves, or moved last.")]


class ReshardState(msgspec.Struct, frozen=True):
    """How far a reshard is; null if there was none lately."""

    reshard: ReshardReply | None


@operation("GET", "/api/v1/queues/{queue}/reshard", name="getReshard", refusals=NO_QUEUE)
def progress(call: ApiCall, snapshot: Snapshot) -> ReshardState:
    """How far a reshard of a queue is, or how the last one went."""
    snapshot.row(call.queue)  # there must be one
    return _state(call)


@operation(
    "POST",
    "/api/v1/queues/{queue}/reshard",
    description="Gives it another number of shards while it is in use: its nodes move what it holds, and follow, as "
    "producers do. This only begins it.",
    body=ReshardRequest,
    refusals=NO_QUEUE | {409: "It is being given another number of shards just now."},
    examples={"reshard": {"shards": 48}},
)
def reshard(call: ApiCall) -> ReshardState:
    """Give a queue another number of shards."""
    call.backend.actions(call.queue).reshard(call.body.shards, who=call.who)
    return _state(call)


def _state(call: ApiCall) -> ReshardState:
    found = read_progress(call.backend.caller, call.backend.namespace, call.queue)
    if found is None:
        return ReshardState(None)
    names = [field.name for field in msgspec.structs.fields(ReshardReply)]
    return ReshardState(ReshardReply(**{name: getattr(found, name) for name in names}))


@operation(
    "POST",
    "/api/v1/queues/{queue}/pause",
    description="Nothing of it is claimed until it is resumed. Pushes go on, jobs that run are finished, and what "
    "nodes had claimed and not started goes back. Repeating it changes the reason, and looks again who has confirmed.",
    body=PauseRequest,
    refusals=NO_QUEUE,
    examples={"pause": {"reason": "the shop counts its stock"}},
)
def pause(call: ApiCall) -> PauseReply:
    """Pause a queue."""
    done = call.backend.actions(call.queue).pause(call.body.reason, who=call.who, wait=call.body.wait)
    return PauseReply(done.since, done.is_confirmed, done.unconfirmed)


@operation("POST", "/api/v1/queues/{queue}/resume", refusals=NO_QUEUE)
def resume(call: ApiCall) -> Resumed:
    """End the pause of a queue."""
    return Resumed(call.backend.actions(call.queue).resume(who=call.who))


@operation("GET", "/api/v1/queues/{queue}/settings", refusals=NO_QUEUE)
def settings(call: ApiCall, snapshot: Snapshot) -> SettingsReply:
    """Options of a queue that can be set while nodes run, and what is set."""
    snapshot.row(call.queue)  # there must be one
    return _settings(call)


@operation(
    "POST",
    "/api/v1/queues/{queue}/settings",
    description="Nodes follow within a second or two. What is unset is as the code says again.",
    body=SettingsRequest,
    refusals=NO_QUEUE,
    examples={"set": {"set": {"concurrency": 10}}, "unset": {"unset": ["concurrency"]}},
)
def set_settings(call: ApiCall) -> SettingsReply:
    """Set options of a queue, or have them be those of the code again."""
    body: SettingsRequest = call.body
    actions = call.backend.actions(call.queue)
    if body.set or not body.unset:
        options: Any = {name: value for name, value in body.set.items() if name != "who"}
        actions.set(who=call.who, **options)
    if body.unset:
        actions.unset(*body.unset, who=call.who)
    return _settings(call)


def _settings(call: ApiCall) -> SettingsReply:
    rows = {
        one.name: SettingRow(
            one.value, one.code, one.setting is not None, one.setting.who if one.setting else "",
            one.setting.at if one.setting else None,
        )
        for one in options_of(call.view, call.queue)
    }  # fmt: skip
    now = redis_time(call.backend.caller)
    waiting = read_waiting(call.backend.caller, call.backend.namespace, [call.queue], now).get(call.queue)
    return SettingsReply(call.queue, rows, *(waiting or ()))
