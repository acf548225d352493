"""Tags of a queue: which of them most ids have; and its tenants (`fair_by`): whose backlog is the largest."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Final, NamedTuple

from lowkiq.admin.jobs.search import AT_ONCE, count_tagged
from lowkiq.job import LONGEST_TENANT, parse_tags
from lowkiq.queue.call import Caller, chunked, pairs
from lowkiq.queue.shard import Shard

#: Ids of a shard that are looked at to find tenants: one that has a twentieth of the queue is among a hundred ids in
#: all but six of a thousand looks.
SAMPLE: Final = 100


class TenantBacklog(NamedTuple):
    """A tenant, and how many ids of it are queued, for now or later: but for those that wait for a person or a run."""

    tenant: str
    ids: int


def largest_backlogs(caller: Caller, shards: Sequence[Shard], limit: int) -> list[TenantBacklog]:
    """
    The tenants with the largest backlogs, the largest first. They are found by ids taken at random, in which those who
    have many are many; their numbers are exact.
    """
    likely: Counter[bytes] = Counter()
    for some in chunked(shards, AT_ONCE):
        likely.update(_sampled(caller, some))
    most = [tenant for tenant, _ in likely.most_common(max(limit, 0))]
    counts: Counter[bytes] = Counter()
    asked = [(shard, tenant) for shard in shards for tenant in most]
    for several in chunked(asked, AT_ONCE):
        lanes = [("ZCARD", shard.prefix.encode() + b"lane:" + tenant) for shard, tenant in several]
        for (_, tenant), length in zip(several, caller.read(lanes, 0), strict=True):
            counts[tenant] += length
    found = [TenantBacklog(tenant.decode(errors="replace"), counts[tenant]) for tenant in most if counts[tenant]]
    return sorted(found, key=lambda one: (-one.ids, one.tenant))


def _sampled(caller: Caller, shards: Sequence[Shard]) -> Counter[bytes]:
    """Tenants of ids taken at random from these shards: about how many ids of each there are."""
    known = caller.read([("HLEN", f"{shard.prefix}tenants") for shard in shards], 0)
    fair = [shard.prefix for shard, count in zip(shards, known, strict=True) if count]
    lengths = caller.read([("ZCARD", f"{prefix}due") for prefix in fair], 0)
    samples = caller.read([("ZRANDMEMBER", f"{prefix}due", SAMPLE) for prefix in fair], [])
    looks = [(prefix, length, ids) for prefix, length, ids in zip(fair, lengths, samples, strict=True) if ids]
    found = caller.read([("HMGET", f"{prefix}tenants", *ids) for prefix, _, ids in looks], [])
    likely: Counter[bytes] = Counter()
    for (_, length, ids), tenants in zip(looks, found, strict=True):
        for tenant in tenants:
            if tenant is not None and len(tenant) <= LONGEST_TENANT:  # anybody may have written it
                likely[tenant] += 1 + length // len(ids)
    return likely


#: Tags of a shard that are read to find those of a queue.
READ_A_SHARD: Final = 100


class TagCount(NamedTuple):
    """A tag, and how many ids have it: queued, claimed or in the morgue."""

    tag: str
    ids: int


def top_tags(caller: Caller, shards: Sequence[Shard], limit: int) -> list[TagCount]:
    """
    The tags that most ids have, the most frequent first. Candidates are the first hundred of each shard, and of those
    the counts are exact.
    """
    found: dict[str, float] = defaultdict(float)
    for some in chunked(shards, AT_ONCE):
        ranges = [("ZREVRANGE", f"{shard.prefix}tag_counts", 0, READ_A_SHARD - 1, "WITHSCORES") for shard in some]
        for page in caller.read(ranges, []):
            for text, count in pairs(page):
                for tag in parse_tags(text):
                    found[tag] += max(float(count), 0.0)
    most = sorted(found, key=lambda tag: (-found[tag], tag))[: max(limit, 0)]
    counts: Counter[str] = Counter()
    asked = [(shard, tag) for shard in shards for tag in most]
    for (_, tag), count in zip(asked, count_tagged(caller, asked), strict=True):
        counts[tag] += count
    return [TagCount(tag, counts[tag]) for tag in sorted(most, key=lambda tag: (-counts[tag], tag)) if counts[tag]]
