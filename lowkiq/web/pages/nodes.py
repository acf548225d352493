"""Nodes: the health of each node, from its heartbeats; what is wrong comes first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from lowkiq.admin.nodes import NodeHealth, Nodes, Running
from lowkiq.web.pages.alerts import alert_rows
from lowkiq.web.pages.live import LivePages, Look
from lowkiq.web.render import words
from lowkiq.web.render.charts import sparkline
from lowkiq.web.snapshot import Snapshot

#: Percent of a core that fill a sparkline's height at least, lest an idle node looks busy.
CPU_TOP = 10.0


@dataclass(frozen=True)
class Part:
    """Shards of one queue."""

    queue: str
    count: int
    ranges: str


@dataclass(frozen=True)
class Waiting:
    """Shards that another node has."""

    #: The node's name in words, or that nobody is known.
    holder: str
    parts: list[Part]


@dataclass(frozen=True)
class Card:
    """A node, with what its heartbeat does not say by itself."""

    health: NodeHealth
    is_doubled: bool = False
    owned: Sequence[Part] = ()
    #: Those of them that are another node's part.
    fostered: Sequence[Part] = ()
    waiting: Sequence[Waiting] = ()
    rss: Markup | None = None
    cpu: Markup | None = None

    @property
    def key(self) -> str:
        """Tells this card from the others."""
        return self.health.node

    @property
    def state(self) -> str:
        """One word for how it is."""
        return "late" if self.health.is_late else self.health.state

    @property
    def kind(self) -> str:
        """How the state looks."""
        if self.health.is_late:
            return "bad"
        return "good" if self.state == "ready" and not self.is_doubled else "warn"

    @property
    def threads(self) -> list[Running]:
        """Its worker threads, also those that are idle."""
        return [Running(self.health, thread) for thread in self.health.threads]

    @property
    def owned_count(self) -> int:
        """Shards that it has."""
        return sum(part.count for part in self.owned)


def routes(pages: LivePages) -> list[BaseRoute]:
    """The page of nodes."""

    def build(look: Look) -> Mapping[str, Any]:
        nodes = look.snapshot.nodes
        of = max((node.number_of_nodes for node in nodes.nodes), default=0)
        return {
            "alerts": [row for row in alert_rows(look.snapshot) if row.alert.kind != "Redis"],
            "missing": [(number, of) for number in nodes.missing],
            "cards": list(_cards(nodes)),
            "summary": _summary(look.snapshot),
        }

    async def nodes(request: Request) -> Response:
        return await pages.answer(request, "nodes.html", build)

    return [Route("/nodes", nodes, name="nodes")]


def _cards(nodes: Nodes) -> Iterator[Card]:
    """Late nodes first, then the others by number."""
    names = {node.node: f"node {node.node_number} on {words.printable(node.host, 60)}" for node in nodes.nodes}
    for node in sorted(nodes.nodes, key=lambda node: not node.is_late):
        yield _card(node, node.node_number in nodes.doubled, names)


def _card(node: NodeHealth, is_doubled: bool, names: Mapping[str, str]) -> Card:
    return Card(
        health=node,
        is_doubled=is_doubled,
        owned=_parts(node.owned),
        fostered=_parts(node.fostered),
        waiting=[Waiting(_holder(holder, names), _parts(queues)) for holder, queues in sorted(node.waited_for.items())],
        rss=_rss(node.rss_history),
        cpu=_cpu(node.cpu_history),
    )


def _rss(history: Sequence[int]) -> Markup | None:
    if not history:
        return None
    low, high = min(history), max(history)
    # Not from zero: what matters is whether it grows.
    label = f"Memory over the last minutes: from {words.size(low)} to {words.size(high)}"
    return sparkline(history, label, base=0.9 * low)


def _cpu(history: Sequence[float]) -> Markup | None:
    if not history:
        return None
    label = f"CPU over the last minutes: from {min(history):.0f} % to {max(history):.0f} %"
    return sparkline(history, label, least_top=CPU_TOP)


def _holder(name: str, names: Mapping[str, str]) -> str:
    if not name:
        return "nobody known yet"
    return names.get(name) or words.printable(name, 80)


def _parts(queues: Mapping[str, Sequence[int]]) -> list[Part]:
    return [Part(queue, len(shards), words.ranges(shards)) for queue, shards in sorted(queues.items()) if shards]


def _summary(snapshot: Snapshot) -> str:
    nodes = snapshot.nodes.nodes
    threads = [thread for node in nodes for thread in node.threads]
    busy = sum(thread.queue is not None for thread in threads)
    owned = sum(len(shards) for node in nodes for shards in node.owned.values())
    of = max((node.number_of_nodes for node in nodes), default=0)
    heard = len({node.node_number for node in nodes})
    return (
        f"{heard} of {words.plural(of, 'node')} · {busy:,} of {words.plural(len(threads), 'thread')} busy · "
        f"{owned:,} of {words.plural(sum(snapshot.shards_counts.values()), 'shard')} owned"
    )
