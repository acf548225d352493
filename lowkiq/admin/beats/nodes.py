"""Nodes: which are late, missing or doubled, by their heartbeats, and what nobody runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from lowkiq.admin.beats.health import MOST_NODES, NodeHealth, Running
from lowkiq.admin.metrics import ShardMetrics
from lowkiq.queue.call import grouped
from lowkiq.queue.unreadable import Unreadable


class Group(NamedTuple):
    """Nodes that share queues, and so count their numbers together. Mostly all nodes are one group."""

    nodes: list[NodeHealth]

    @property
    def queues(self) -> list[str]:
        """The queues that its nodes run, as far as they tell."""
        return sorted({queue for node in self.nodes for queue in node.queues or ()})

    @property
    def numbered(self) -> list[NodeHealth]:
        """Its nodes whose part of the shards follows from their number."""
        return [node for node in self.nodes if not node.is_elastic]

    def runs(self, queue: str) -> bool:
        """Returns whether any of its nodes runs that queue, as far as they tell."""
        return any(node.runs(queue) for node in self.nodes)

    @property
    def size(self) -> int:
        """How many nodes there should be, as far as they are numbered: 0 if they share by themselves."""
        return min(max((node.number_of_nodes for node in self.numbered), default=0), MOST_NODES)

    @property
    def missing(self) -> list[int]:
        """Numbers from which no beat comes."""
        numbers = {node.node_number for node in self.numbered}
        return [number for number in range(self.size) if number not in numbers]

    @property
    def away(self) -> list[tuple[NodeHealth, int]]:
        """Numbers of which no beat comes though the supervisor is there: each with another node of it."""
        told = [node for node in self.nodes if node.is_elastic and node.supervisor_pid is not None]
        by_supervisor, found = grouped((node.supervisor, node) for node in told), []
        for nodes in by_supervisor.values():
            numbers, newest = {node.node_number for node in nodes}, min(nodes, key=lambda node: node.beat_age)
            most = min(newest.number_of_nodes, MOST_NODES)
            found += [(newest, number) for number in range(most) if number not in numbers]
        return found

    @property
    def doubled(self) -> list[int]:
        """Numbers that several nodes have. One that a supervisor has started to replace another only stands by."""
        there = [node for node in self.numbered if not (node.is_late or node.is_leaving)]
        places = {(node.node_number, node.supervisor) for node in there}
        several = Counter(number for number, _ in places)
        return sorted(number for number, count in several.items() if count > 1)


class Nodes(msgspec.Struct, frozen=True, kw_only=True):
    """All nodes of a namespace, and what is wrong with their beats, numbers and shards."""

    #: By node number.
    nodes: list[NodeHealth]
    #: Names of nodes that have not beaten lately.
    late: list[str]
    #: Numbers below number_of_nodes from which no beat comes, of whichever group or supervisor.
    missing: list[int]
    #: Numbers that several nodes have, and go on having: the second stands by.
    doubled: list[int]
    #: Shards with due jobs whose lease nobody has.
    unowned: list[ShardMetrics]
    #: Values in Redis that can't be read.
    unreadable: list[Unreadable] = []

    @property
    def groups(self) -> list[Group]:
        """The nodes by the queues that they share."""
        return groups_of(self.nodes)

    @property
    def running_on(self) -> list[Running]:
        """Batches that were asked to stop and have not, the longest first."""
        found = [running for node in self.nodes for running in node.batches if running.runs_on]
        return sorted(found, key=lambda running: -running.seconds)


def groups_of(nodes: Iterable[NodeHealth]) -> list[Group]:
    """Nodes by the queues that they share, directly or through others. One that doesn't tell has them all."""
    found: list[tuple[set[str] | None, Group]] = []
    for node in nodes:
        queues = None if node.queues is None else set(node.queues)
        joined = [row for row in found if queues is None or row[0] is None or row[0] & queues]
        for row in joined:
            found.remove(row)
            queues = None if queues is None or row[0] is None else queues | row[0]
        found.append((queues, Group([*(one for _, group in joined for one in group.nodes), node])))
    return [group for _, group in found]


def judge(nodes: list[NodeHealth], shards: Sequence[ShardMetrics], unreadable: Sequence[Unreadable]) -> Nodes:
    """The nodes with what is wrong, by their heartbeats, the numbers of all shards, and what can't be read."""
    groups = groups_of(nodes)
    return Nodes(
        nodes=nodes,
        late=[node.node for node in nodes if node.is_late],
        missing=sorted(
            {
                *(number for group in groups for number in group.missing),
                *(number for group in groups for _, number in group.away),
            }
        ),
        doubled=sorted({number for group in groups for number in group.doubled}),
        unowned=[shard for shard in shards if shard.is_unowned],
        unreadable=list(unreadable),
    )
