"""Troubles: what is wrong with the whole, in plain sentences, each with where to look."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from lowkiq.admin.nodes import NodeHealth
from lowkiq.web.render import formatting as words
from lowkiq.web.snapshot import Snapshot


@dataclass(frozen=True)
class Trouble:
    """One thing that is wrong."""

    #: One word for it.
    name: str
    text: str
    #: Where to look, within the view.
    path: str
    #: "bad": jobs do not run. "warn": they may not, later.
    kind: Literal["bad", "warn"] = "bad"


def troubles_of(snapshot: Snapshot) -> list[Trouble]:
    """Everything, the worst first."""
    found = [*_of_nodes(snapshot), *_of_shards(snapshot), *_of_redis(snapshot)]
    return sorted(found, key=lambda trouble: trouble.kind != "bad")


def of_queue(snapshot: Snapshot, queue: str) -> list[Trouble]:
    """What is wrong with one queue."""
    path = f"/queues/{queue}"
    return [trouble for trouble in _of_shards(snapshot) if trouble.path == path]


def _of_nodes(snapshot: Snapshot) -> Iterator[Trouble]:
    nodes = snapshot.nodes
    by_name = {node.node: node for node in nodes.nodes}
    if not nodes.nodes:
        yield Trouble("no nodes", "No node has been heard of for half a minute: nothing runs.", "/nodes")
    for name in nodes.unreadable:
        beat = f"The beat of {words.printable(name)} can't be read"
        yield Trouble("unreadable", f"{beat}: is it of another Lowkiq, or not Lowkiq's at all?", "/nodes")
    if nodes.missing:
        yield Trouble("missing", _missing(nodes.missing, nodes.nodes), "/nodes")
    for name in nodes.late:
        yield Trouble("late", _late(by_name[name]), "/nodes")
    for number in nodes.doubled:
        hosts = [node.host for node in nodes.nodes if node.node_number == number]
        yield Trouble("doubled", _doubled(number, hosts), "/nodes", "warn")


def _missing(numbers: list[int], nodes: list[NodeHealth]) -> str:
    of = max((node.number_of_nodes for node in nodes), default=0)
    if len(numbers) == 1:
        return f"Node {numbers[0]} of {of} is missing: others stand in for it as soon as its leases end."
    return f"Nodes {words.ranges(numbers)} of {of} are missing: others stand in for them as soon as their leases end."


def _late(node: NodeHealth) -> str:
    name = f"Node {node.node_number} on {words.printable(node.host, 60)}"
    return f"{name} has not been heard of for {words.age(node.beat_age)}; its shards move on when its lease ends."


def _doubled(number: int, hosts: list[str]) -> str:
    where = words.listed(sorted({words.printable(host, 60) for host in hosts}))
    count = f"{len(hosts)} nodes have the number {number}, on {where}"
    return f"{count}: all but one stand by. Check NODE_NUMBER."


def _of_shards(snapshot: Snapshot) -> Iterator[Trouble]:
    """A sentence a queue: a thousand shards can lose their node at once."""
    lags: dict[str, list[float]] = {}
    for shard in snapshot.nodes.unowned:
        lags.setdefault(shard.queue, []).append(-(shard.due_in or 0.0))
    counts = Counter({queue: len(found) for queue, found in lags.items()})
    for queue, count in counts.most_common():
        name = words.printable(queue, 60)
        numbers = words.ranges(row.shard for row in snapshot.nodes.unowned if row.queue == queue)
        shards = f"Shard {numbers} of {name} has" if count == 1 else f"{count:,} shards of {name} ({numbers}) have"
        text = f"{shards} jobs due and no node; the oldest is {words.age(max(lags[queue]))} late."
        yield Trouble("unowned", text, f"/queues/{queue}")


def _of_redis(snapshot: Snapshot) -> Iterator[Trouble]:
    for warning in snapshot.server.warnings:
        yield Trouble("Redis", f"{warning[:1].upper()}{warning[1:]}.", "/#redis", "warn")
