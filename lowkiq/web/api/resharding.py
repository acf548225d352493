"""The API's reshard of a queue: what it begins, and how far that is."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from lowkiq.admin.resharding import read_progress
from lowkiq.queue.keys import MOST_SHARDS
from lowkiq.web.api.operation import NO_QUEUE, ApiCall, operation
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


@operation("GET", "/api/v1/queues/{queue}/reshard", "getReshard", refusals=NO_QUEUE)
def progress(call: ApiCall, snapshot: Snapshot) -> ReshardState:
    """How far a reshard of a queue is, or how the last one went."""
    snapshot.row(call.queue)  # there must be one
    return _state(call)


@operation(
    "POST",
    "/api/v1/queues/{queue}/reshard",
    "reshard",
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
