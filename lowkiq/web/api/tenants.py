"""Tenants of a queue in the API: whose backlog is the largest."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from lowkiq.web.api.operation import NO_QUEUE, ApiCall, operation


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
