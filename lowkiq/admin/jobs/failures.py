"""
Failures of a queue by kind: groups of jobs whose errors are alike, from a sample of those that are there now; and its
ledger, which nodes keep of how often each kind was seen, and when first and last: 200 groups, for 30 days.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from lowkiq.admin.jobs.search import Search
from lowkiq.codec import encodable
from lowkiq.failure import GROUP_CHARS, group_of
from lowkiq.job import KEPT_BYTES
from lowkiq.queue import keys
from lowkiq.queue.call import Call, Caller, pairs, raise_first
from lowkiq.queue.unreadable import Unreadable, bounded, number_in, parsed, quoted

#: Groups of a queue's ledger, and seconds for which one is kept that is not seen again.
MOST_GROUPS, KEPT_SECONDS = 200, 30 * 86_400
#: Seconds in which a node may repeat a flush of which it does not know whether Redis has it.
REPEATED_WITHIN: Final = 86_400
#: Errors read to group them, and shards that they are taken from: about 1 ms of Redis.
SAMPLED_ERRORS, SAMPLED_SHARDS = 500, 50


class Seen(NamedTuple):
    """A group in the ledger: the times of its first failure and its last, and how many there were."""

    first: float | None
    last: float
    total: int


class ErrorGroup(msgspec.Struct, frozen=True):
    """Jobs whose last errors are alike."""

    #: The error's first line, with what differs from one to the next masked; "" if none was kept.
    text: str
    #: Jobs of it in the sample.
    count: int
    example_id: str
    #: By Redis's clock, to a beat. None: the ledger does not have it, as no try failed so: a node died, say.
    first_seen: float | None = None
    last_seen: float | None = None
    #: Tries that have failed so since it was first seen, those of jobs that are done by now included.
    total: int | None = None


class Groups(NamedTuple):
    """Groups of errors, the largest first; the size of the sample they come from; and how many jobs there are."""

    groups: list[ErrorGroup]
    sampled: int
    total: int


def note(caller: Caller, namespace: str, node: str, number: int, counted: Mapping[str, Mapping[str, int]]) -> None:
    """
    Adds what a node has counted to the ledgers of its queues. Repeating a flush, which has a number, changes nothing.
    """
    limits = (MOST_GROUPS, KEPT_SECONDS, REPEATED_WITHIN)
    calls: list[Call[bool]] = []
    for queue, groups in counted.items():
        words = [word for row in groups.items() for word in row]
        calls.append(Call("note_failures", [keys.failures(namespace, queue)], [node, number, *limits, *words], bool))
    raise_first(caller.run_all(calls))


def read_ledger(caller: Caller, namespace: str, queue: str) -> dict[str, Seen]:
    """What a queue's ledger says of its groups, those seen last first."""
    prefix = keys.failures(namespace, queue)
    seen, first, counts = (f"{prefix}{name}" for name in ("seen", "first", "counts"))
    (found,) = caller.read([("ZREVRANGE", seen, 0, MOST_GROUPS - 1, "WITHSCORES")], [])
    rows = [(text, last) for text, last in pairs(found) if len(text) <= 4 * GROUP_CHARS]
    if not rows:
        return {}
    texts = [text for text, _ in rows]
    firsts, totals = caller.read([("HMGET", key, *texts) for key in (first, counts)], [None] * len(texts))
    met: list[Unreadable] = []
    ledger = {}
    for (text, last), begun, total in zip(rows, firsts, totals, strict=True):
        field = f"{quoted(first)} {quoted(text)}"
        began = parsed(met, field, f"HDEL {field}", bounded, begun) if begun else None
        number = number_in(met, counts, text, total) if total else 0
        ledger[text.decode("utf-8", "replace")] = Seen(began, bounded(last), number)
    caller.met.tell(f"{prefix} ledger", met[:1])  # one of a ledger says enough
    return ledger


def read_groups(search: Search, view: str) -> Groups:
    """The groups of a view, from a sample of its newest jobs, with what the ledger says of them."""
    lengths = search.lengths(view)
    filled = [shard for shard, length in zip(search.shards, lengths, strict=True) if length]
    some = filled[:: -(-len(filled) // SAMPLED_SHARDS) or 1]
    newest = search.newest(view, some, SAMPLED_ERRORS // max(1, len(some)))
    found = [(group_of(error), id.decode("utf-8", KEPT_BYTES)) for id, error in newest]
    ledger = read_ledger(search.caller, some[0].namespace, some[0].queue) if found else {}
    examples = dict(reversed(found))
    counts = Counter(text for text, _ in found).most_common()
    groups = [_group(text, count, examples[text], ledger.get(text)) for text, count in counts]
    return Groups(groups, len(found), sum(lengths))


def _group(text: str, count: int, example: str, seen: Seen | None) -> ErrorGroup:
    if seen is None:
        return ErrorGroup(text, count, example)
    return ErrorGroup(text, count, example, seen.first, seen.last, seen.total)


def named(groups: Sequence[ErrorGroup]) -> list[ErrorGroup]:
    """The same as JSON can have them: it has no way to name bytes that are no UTF-8."""
    return [msgspec.structs.replace(group, example_id=encodable(group.example_id)) for group in groups]
