"""Page of nodes: the health of each, from its heartbeats; what is wrong comes first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from lowkiq.admin.beats.health import EVENT_LOOP, NodeHealth, Running, read_gone
from lowkiq.admin.beats.nodes import Group
from lowkiq.admin.words import printable, ranges
from lowkiq.web.pages.live import Visit
from lowkiq.web.render import formatting
from lowkiq.web.render.charts import sparkline
from lowkiq.web.snapshot import Snapshot
from lowkiq.web.view import View

#: Percent of a core that fill a sparkline's height at least, lest an idle node looks busy.
CPU_TOP = 10.0
#: Tasks of a node that are shown, the longest first; and rows in one column.
SHOWN_TASKS, DENSE = 10, 8
#: Queue → some of its shards; the same in words.
ShardNumbers = Mapping[str, Sequence[int]]
Shards = dict[str, str]


@dataclass(frozen=True)
class Card:
    """A node, with what its heartbeat does not say by itself."""

    health: NodeHealth
    is_doubled: bool
    owned: Shards
    #: Shards owned that are another node's part.
    fostered: Shards
    #: Shards owned that were moved here for their load.
    loaded: Shards
    #: Node that is to have shards owned, in words, and these shards.
    leaving: list[tuple[str, Shards]]
    #: Holder of shards that are this node's part, in words, and these shards.
    waiting: list[tuple[str, Shards]]
    rss: Markup | None
    cpu: Markup | None

    @property
    def state(self) -> str:
        """One word for how it is."""
        return "late" if self.health.is_late else self.health.state

    @property
    def kind(self) -> str:
        """Colour of the state."""
        if self.health.is_late or self.health.redis_error:
            return "bad"
        return "good" if self.state == "ready" and not self.is_doubled else "warn"

    @property
    def rows(self) -> list[Running]:
        """Its worker threads, also those that are idle, and the tasks that have run for longest."""
        rows = (*self.health.threads, *self.health.longest_tasks[:SHOWN_TASKS])
        return [Running(self.health, row) for row in rows]

    @property
    def keyed_rows(self) -> Iterator[tuple[str, Running]]:
        """
        The same with the keys by which a refresh finds each again: a thread's name, a task's job. So a row is not taken
        for another when tasks end, and what has the focus keeps it.
        """
        taken: Counter[str] = Counter()
        for running in self.rows:
            row = running.thread
            key = row.name if row.name != EVENT_LOOP else f"{row.queue} {row.shard} {''.join(row.ids[:1])}"
            taken[key] += 1
            yield (key if taken[key] == 1 else f"{key} {taken[key]}"), running

    @property
    def is_dense(self) -> bool:
        """True when its rows go in two columns: they are many, and short."""
        rows = [running.thread for running in self.rows]
        return len(rows) > DENSE and all(row.progress is None and row.to_stop_seconds is None for row in rows)

    @property
    def left_tasks(self) -> int:
        """Tasks that are not shown."""
        return max((self.health.tasks or 0) - len(self.health.longest_tasks[:SHOWN_TASKS]), 0)


@dataclass(frozen=True)
class Missing:
    """A number from which no beat comes, and the last that did, if that was within a day."""

    number: int
    of: int
    last: NodeHealth | None


def build(view: View, visit: Visit) -> Mapping[str, Any]:
    """The page of nodes."""
    nodes = visit.snapshot.nodes
    names = {node.node: f"node {node.node_number} on {printable(node.host, 60)}" for node in nodes.nodes}
    late_first = sorted(nodes.nodes, key=lambda node: not node.is_late)
    groups = nodes.groups
    doubled = {node.node for group in groups for node in group.nodes if node.node_number in group.doubled}
    leases = _Leases(visit.snapshot)
    return {
        "alerts": [alert for alert in visit.snapshot.alerts if alert.kind != "Redis"],
        "missing": _missing(view, visit, groups),
        "cards": [_card(node, node.node in doubled, leases, names) for node in late_first],
        "summary": _summary(visit.snapshot, groups),
    }


def _missing(view: View, visit: Visit, groups: Sequence[Group]) -> list[Missing]:
    found = [(number, group.size, group) for group in groups for number in group.missing]
    found += [(number, other.number_of_nodes, Group([other])) for group in groups for other, number in group.away]
    gone = read_gone(view.backend.caller, view.backend.namespace) if found and visit.reads else []
    return [Missing(number, of, _last(number, group, gone)) for number, of, group in found]


def _last(number: int, group: Group, gone: Sequence[NodeHealth]) -> NodeHealth | None:
    """The last node that had the number; of those of another group it is another number."""
    ours = (node for node in gone if node.node_number == number)
    return next((node for node in ours if node.queues is None or any(map(group.runs, node.queues))), None)


class _Leases:
    """
    Shards of each node by their leases, as the alerts and the summary count them: a heartbeat may be of before its node
    lost them. Only of shards that no poll has read yet, heartbeats are believed.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._owners = {(each.queue, each.shard): each.owner if each.lease_rest else "" for each in snapshot.shards}
        self._owned: dict[str, dict[str, list[int]]] = {}
        for (queue, shard), owner in self._owners.items():
            self._owned.setdefault(owner or "", {}).setdefault(queue, []).append(shard)
        self._loaded: dict[str, dict[str, list[int]]] = {}
        self._leaving: dict[str, dict[str, dict[str, list[int]]]] = {}
        for row in snapshot.owners.values():
            if row.owner and row.why == "load":
                self._loaded.setdefault(row.owner.node, {}).setdefault(row.queue, []).append(row.shard)
            elif row.owner and row.why in {"handover", "drain"}:
                to = self._leaving.setdefault(row.owner.node, {}).setdefault(str(row.target or "others"), {})
                to.setdefault(row.queue, []).append(row.shard)

    def owned(self, node: NodeHealth) -> ShardNumbers:
        found = {queue: list(shards) for queue, shards in self._owned.get(node.node, {}).items()}
        for queue, shards in node.owned.items():
            unread = [shard for shard in shards if (queue, shard) not in self._owners]
            if unread:
                found[queue] = [*found.get(queue, ()), *unread]
        return found

    def loaded(self, node: NodeHealth) -> ShardNumbers:
        """The shards of a node that were moved to it for their load."""
        return self._loaded.get(node.node, {})

    def leaving(self, node: NodeHealth) -> Mapping[str, ShardNumbers]:
        """The shards of a node that others are to have: who in words, and which."""
        return self._leaving.get(node.node, {})


def _card(node: NodeHealth, is_doubled: bool, leases: _Leases, names: Mapping[str, str]) -> Card:
    owned = leases.owned(node)
    waited_for = {} if node.is_late else node.waited_for  # one that is late waits for nothing any more
    return Card(
        health=node,
        is_doubled=is_doubled,
        owned=_shards(owned),
        fostered=_shards(_within(node.fostered, owned)),
        loaded=_shards(leases.loaded(node)),
        leaving=[(to, words) for to, shards in sorted(leases.leaving(node).items()) if (words := _shards(shards))],
        waiting=[
            (_holder(holder, names), words)
            for holder, told in sorted(waited_for.items())
            if (words := _shards(_without(told, owned)))
        ],
        rss=_rss(node.rss_history),
        cpu=_cpu(node.cpu_history),
    )


def _within(told: ShardNumbers, owned: ShardNumbers) -> ShardNumbers:
    return {queue: [shard for shard in shards if shard in owned.get(queue, ())] for queue, shards in told.items()}


def _without(told: ShardNumbers, owned: ShardNumbers) -> ShardNumbers:
    return {queue: [shard for shard in shards if shard not in owned.get(queue, ())] for queue, shards in told.items()}


def _rss(history: Sequence[int]) -> Markup | None:
    if not history:
        return None
    low, high = min(history), max(history)
    # Not from zero: what matters is whether it grows.
    label = f"Memory over the last minutes: from {formatting.size(low)} to {formatting.size(high)}"
    return sparkline(history, label, base=0.9 * low)


def _cpu(history: Sequence[float]) -> Markup | None:
    if not history:
        return None
    label = f"CPU over the last minutes: from {min(history):.0f} % to {max(history):.0f} %"
    return sparkline(history, label, least_top=CPU_TOP)


def _holder(name: str, names: Mapping[str, str]) -> str:
    if not name:
        return "nobody known yet"
    return names.get(name) or printable(name, 80)


def _shards(queues: ShardNumbers) -> Shards:
    return {queue: ranges(sorted(shards)) for queue, shards in sorted(queues.items()) if shards}


def _summary(snapshot: Snapshot, groups: Sequence[Group]) -> str:
    nodes = [node for node in snapshot.nodes.nodes if not node.is_late]  # what a late one did, it may do no more
    late = len(snapshot.nodes.nodes) - len(nodes)
    threads = [thread for node in nodes for thread in node.threads]
    busy = sum(thread.queue is not None for thread in threads)
    loops = [node.tasks for node in nodes if node.tasks is not None]
    # By the leases, as the alerts have it: a heartbeat may be of before its node lost them.
    owned = sum(shard.lease_rest > 0 for shard in snapshot.shards)
    seen = sum(len({node.node_number for node in group.numbered if not node.is_late}) for group in groups)
    sharing = sum(node.is_elastic for node in nodes)
    of = sum(group.size for group in groups)
    numbered = [f"{seen} of {formatting.plural(of, 'node')}"] if of or not sharing else []
    there = " and ".join([*numbered, *([formatting.plural(sharing, "node")] if sharing else [])])
    return " · ".join(
        [
            there + (f", {late} late" if late else ""),
            *([f"{busy:,} of {formatting.plural(len(threads), 'thread')} busy"] if threads or not loops else []),
            *([formatting.plural(sum(loops), "task")] if loops else []),
            f"{owned:,} of {formatting.plural(sum(snapshot.shards_counts.values()), 'shard')} owned",
        ]
    )
