"""Tags of a queue in the API."""

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
