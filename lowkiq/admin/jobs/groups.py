"""Groups of a queue (`fair_by`): whose backlog is the largest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from lowkiq.admin.jobs.search import AT_ONCE
from lowkiq.job import LONGEST_GROUP
from lowkiq.queue.call import Caller, chunked
from lowkiq.queue.shard import Shard

#: Ids of a shard that are looked at to find groups: one that has a twentieth of the queue is among a hundred ids in all
#: but six of a thousand looks.
SAMPLE: Final = 100


class GroupBacklog(NamedTuple):
    """A group, and how many ids of it are queued, for now or later: but for those that wait for a person or a run."""

    group: str
    ids: int


def largest_groups(caller: Caller, shards: Sequence[Shard], limit: int) -> list[GroupBacklog]:
    """
    The groups with the largest backlogs, the largest first. They are found by ids taken at random, in which those who
    have many are many; their numbers are exact.
    """
    likely: Counter[bytes] = Counter()
    for some in chunked(shards, AT_ONCE):
        likely.update(_sampled(caller, some))
    most = [group for group, _ in likely.most_common(max(limit, 0))]
    counts: Counter[bytes] = Counter()
    asked = [(shard, group) for shard in shards for group in most]
    for pairs in chunked(asked, AT_ONCE):
        lanes = [("ZCARD", shard.prefix.encode() + b"lane:" + group) for shard, group in pairs]
        for (_, group), length in zip(pairs, caller.read(lanes, 0), strict=True):
            counts[group] += length
    found = [GroupBacklog(group.decode(errors="replace"), counts[group]) for group in most if counts[group]]
    return sorted(found, key=lambda one: (-one.ids, one.group))


def _sampled(caller: Caller, shards: Sequence[Shard]) -> Counter[bytes]:
    """Groups of ids taken at random from these shards: about how many ids of each there are."""
    known = caller.read([("HLEN", f"{shard.prefix}groups") for shard in shards], 0)
    fair = [shard.prefix for shard, count in zip(shards, known, strict=True) if count]
    lengths = caller.read([("ZCARD", f"{prefix}due") for prefix in fair], 0)
    samples = caller.read([("ZRANDMEMBER", f"{prefix}due", SAMPLE) for prefix in fair], [])
    looks = [(prefix, length, ids) for prefix, length, ids in zip(fair, lengths, samples, strict=True) if ids]
    found = caller.read([("HMGET", f"{prefix}groups", *ids) for prefix, _, ids in looks], [])
    likely: Counter[bytes] = Counter()
    for (_, length, ids), groups in zip(looks, found, strict=True):
        for group in groups:
            if group is not None and len(group) <= LONGEST_GROUP:  # anybody may have written it
                likely[group] += 1 + length // len(ids)
    return likely
