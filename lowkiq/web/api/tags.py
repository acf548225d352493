"""Tags and tenants of a queue in the API: which of them most ids have."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from lowkiq.web.api.operation import NO_QUEUE, ApiCall, operation


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
    "getTags",
    description="Of each shard its hundred most frequent tags are looked at, and of those the counts are exact.",
    query=TagsQuery,
    refusals=NO_QUEUE,
)
def tags(call: ApiCall) -> TagsReply:
    """The tags that most ids of a queue have, the most frequent first."""
    found = call.backend.tags(call.queue, call.query.limit)
    return TagsReply(call.queue, [TagRow(*one) for one in found])


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
    "getTenants",
    description="Tenants are those of the worker's fair_by. They are found by a hundred ids of each shard, taken at "
    "random, in which those who have many are many; their numbers are exact.",
    query=TenantsQuery,
    refusals=NO_QUEUE,
)
def tenants(call: ApiCall) -> TenantsReply:
    """Whose backlog is the largest in a queue that gives fair shares."""
    found = call.backend.tenants(call.queue, call.query.limit)
    return TenantsReply(call.queue, [TenantRow(*one) for one in found])
