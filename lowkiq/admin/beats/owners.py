"""Owners: for each shard the node that has it, the one that is to have it, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from lowkiq.admin.beats.health import NodeHealth
from lowkiq.admin.beats.members import Placement
from lowkiq.admin.metrics import ShardMetrics
from lowkiq.admin.words import age, printable

Place = tuple[str, int]
Why = Literal["share", "load", "number", "handover", "drain", "lease", "stands in", "free", "nobody"]
#: What there is to know of a `why`, for the API's document.
WHYS: Final = (
    "share: dealt to the node by its threads. load: given to it as another was too busy. number: by NODE_NUMBER or a "
    "build_splitter. handover: it goes to its target between two claims. drain: it does so as its node ends. lease: "
    "its node is not heard of, and the lease runs on for a while. stands in: its own node is away, or has not asked "
    "for it yet. free: nobody has it at the moment. nobody: no node that is there runs its queue."
)


_MOVING: Final[tuple[Why, str]] = ("handover", "its jobs are being moved to other shards")


class Named(msgspec.Struct, frozen=True):
    """A node, as people name it."""

    node: str
    #: None and "" of one that has not been heard of lately.
    number: int | None
    host: str

    def __str__(self) -> str:
        if self.number is None:
            return printable(self.node, 80)
        return f"node {self.number} on {printable(self.host, 60)}"


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """A shard, its node, and why that has it."""

    queue: str
    shard: int
    owner: Annotated[Named | None, Meta(description="The node that has the lease.")]
    target: Annotated[
        Named | None,
        Meta(description="The node that says it is its part: the owner, or one that waits; null if none does."),
    ]
    why: Annotated[Why, Meta(description=WHYS)]
    says: Annotated[str, Meta(description="The same in words.")]


def owners_of(
    nodes: Sequence[NodeHealth], shards: Sequence[ShardMetrics], placements: Mapping[Place, Placement], at: float
) -> list[Owner]:
    """
    The owner of each of these shards, and of none other.

    Args:
        nodes: all that have beaten lately: what each says of itself is up to a beat old.
        placements: shards that were moved for their load. at: Redis's time.
    """
    known = _Known(nodes, placements, at)
    newest: dict[str, int] = {}
    for shard in shards:
        newest[shard.queue] = max(shard.generation, newest.get(shard.queue, 1))
    return [known.owner_of(shard, is_moving=shard.generation < newest[shard.queue]) for shard in shards]


class _Known:
    def __init__(self, nodes: Sequence[NodeHealth], placements: Mapping[Place, Placement], at: float) -> None:
        self._nodes = {node.node: node for node in nodes}
        self._placements, self._at = placements, at
        living = sorted((node for node in nodes if not node.is_late), key=lambda node: -node.beat_age)
        self._ready = [node for node in living if not node.is_leaving]
        #: The newest word counts: what another has said of a shard before is over.
        self._wanted = {place: node.node for node in self._ready for place in _part(node)}
        self._fostered = {(node.node, *place) for node in living for place in _places(node.fostered)}

    def owner_of(self, shard: ShardMetrics, *, is_moving: bool) -> Owner:
        """What nodes say of their part is of the shards that a queue moves to, if it does."""
        owner = shard.owner if shard.lease_rest > 0 else None
        target = None if is_moving else self._wanted.get((shard.queue, shard.shard))
        why, says = _MOVING if is_moving else self._why(shard, owner, target)
        return Owner(
            queue=shard.queue, shard=shard.shard, owner=self._named(owner), target=self._named(target), why=why,
            says=says,
        )  # fmt: skip

    def _why(self, shard: ShardMetrics, owner: str | None, target: str | None) -> tuple[Why, str]:
        heir = str(self._named(target) or "another node")
        if owner is None:
            return self._why_nobody(shard, target)
        node = self._nodes.get(owner)
        if node is None or node.is_late:
            return "lease", f"its node is not heard of; {heir} takes it when the lease ends, in {age(shard.lease_rest)}"
        when = "when its jobs in hand end" if shard.busy else "between two claims"
        if node.is_leaving:
            return "drain", f"its node ends: it goes to {heir} {when}"
        if target not in {None, owner}:
            return "handover", f"it goes to {heir} {when}"
        return self._why_there(node, shard)

    def _why_nobody(self, shard: ShardMetrics, target: str | None) -> tuple[Why, str]:
        if target:
            return "free", f"free: {self._named(target)} takes it"
        if any(node.runs(shard.queue) for node in self._ready):
            return "free", "free until a node takes it"
        return "nobody", "no node that is there runs this queue"

    def _why_there(self, node: NodeHealth, shard: ShardMetrics) -> tuple[Why, str]:
        if (node.node, shard.queue, shard.shard) in self._fostered:
            return "stands in", "stands in, until the node whose part it is asks for it"
        if (placement := self._placements.get(shard.place)) and placement.node == node.node:
            since = age(max(self._at - placement.at, 0.0))
            return "load", f"moved here to balance, {since} ago"
        if node.is_elastic:
            return "share", "its share"
        return "number", f"by its number, {node.node_number} of {node.number_of_nodes}, or a build_splitter"

    def _named(self, name: str | None) -> Named | None:
        node = self._nodes.get(name or "")
        if node is not None:
            return Named(node.node, node.node_number, node.host)
        return Named(name, None, "") if name else None


def _part(node: NodeHealth) -> Iterator[Place]:
    """What a node takes for its part: of what it has, and of what it waits for."""
    fostered = set(_places(node.fostered))
    yield from (place for place in _places(node.owned) if place not in fostered)
    for queues in node.waited_for.values():
        yield from _places(queues)


def _places(queues: Mapping[str, Sequence[int]]) -> Iterator[Place]:
    return ((queue, shard) for queue, shards in queues.items() for shard in shards)
