"""Tags of a queue: which of them most ids have."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Final, NamedTuple

from lowkiq.admin.jobs.search import AT_ONCE, count_tagged
from lowkiq.job import parse_tags
from lowkiq.queue.call import Caller, chunked, pairs
from lowkiq.queue.shard import Shard

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
