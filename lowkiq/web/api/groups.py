"""Groups of a queue in the API: whose backlog is the largest."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.concurrency import run_in_threadpool

from lowkiq.web.api.operation import NO_QUEUE, ApiCall, operation


class GroupsQuery(msgspec.Struct, frozen=True):
    """Choice of groups."""

    limit: Annotated[int, Meta(ge=1, le=100, description="At most so many.")] = 10


class GroupRow(msgspec.Struct, frozen=True):
    """A group, and how many ids of it are queued."""

    group: str
    ids: int


class GroupsReply(msgspec.Struct, frozen=True):
    """The groups with the largest backlogs of a queue."""

    queue: str
    groups: list[GroupRow]


@operation(
    "GET",
    "/api/v1/queues/{queue}/groups",
    "getGroups",
    description="Groups are those of the worker's fair_by. They are found by a hundred ids of each shard, taken at "
    "random, in which those who have many are many; their numbers are exact.",
    query=GroupsQuery,
    refusals=NO_QUEUE,
)
async def groups(call: ApiCall) -> GroupsReply:
    """Whose backlog is the largest in a queue that gives fair shares."""
    found = await run_in_threadpool(call.view.backend.groups, call.queue, call.query.limit)
    return GroupsReply(call.queue, [GroupRow(*one) for one in found])
