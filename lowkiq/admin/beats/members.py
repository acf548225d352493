"""
Members: the nodes to which shards may be dealt, where nobody numbers nodes, and what each of them has;
and shards that nobody has where they do, for which another node may stand in.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta
from redis.exceptions import ResponseError

from lowkiq.admin.beats.hands import HAND
from lowkiq.admin.beats.health import LATE_AFTER, MOST_BEAT_BYTES, Shards, Text, read_health
from lowkiq.queue import keys
from lowkiq.queue.call import Call, Caller, pairs
from lowkiq.queue.shard import Shard
from lowkiq.queue.unreadable import Unreadable, parsed, quoted

#: Seconds for which a list of unowned shards counts as the last one.
UNOWNED_TTL: Final = 15
#: Rings a node for a shard that nobody has (so does release.lua).
FOSTER: Final = b"foster"


def ask_to_foster(
    caller: Caller, namespace: str, told: Mapping[Shard, str], heirs: Mapping[Shard, str], leaver: str = ""
) -> None:
    """
    Asks nodes that are ready, and run these shards' queues, to stand in for the nodes whose part the shards are.

    Args:
        told: shards that nobody has, each with a node that was told already, or "". Others are asked if it isn't there.
        heirs: the nodes that are asked first, as far as they are there.
        leaver: a node that is not to be asked.
    """
    living = {node.node: node for node in read_health(caller, namespace) if not node.is_late}
    able = [node for name, node in living.items() if node.state == "ready" and name != leaver]
    random.shuffle(able)
    takers = {queue: [node for node in able if node.runs(queue)] for queue in {shard.queue for shard in told}}
    rings: list[tuple[Any, ...]] = []
    for number, (shard, name) in enumerate(told.items()):
        if name in living:
            continue
        nodes, taker = takers[shard.queue], heirs.get(shard, "")
        if taker not in living and nodes:
            taker = nodes[number % len(nodes)].node
        if taker in living:
            rings.append(("PUBLISH", keys.doorbell(namespace, taker), FOSTER + b" " + shard.prefix.encode()))
    caller.commands(rings)


def exchange_unowned(caller: Caller, namespace: str, prefixes: Collection[str]) -> set[str]:
    """Keeps the shards that nobody has now, and returns those that nobody had at the last check, by whichever node."""
    key, text = keys.unowned(namespace), msgspec.json.encode(sorted(prefixes))
    last, _ = caller.read([("GET", key), ("SET", key, text, "EX", UNOWNED_TTL)], None)
    found = parsed([], key, "", msgspec.json.Decoder(list[str]).decode, last) if last else None  # written anew anyway
    return set(found or ())


T = TypeVar("T")

#: Members, and shards that have a placement, that are read.
MOST: Final = 10_000


class Member(msgspec.Struct, frozen=True):
    """A node that runs queues. Its name is beside it."""

    #: How much it can do beside others: its threads.
    weight: Annotated[int, Meta(ge=1, le=1_000_000)]
    #: Queue → shards that it has; of a queue that it leaves alone there is none.
    owned: Shards


class Placement(msgspec.Struct, frozen=True):
    """The node that a shard was given to, as another one was too busy. The shard is beside it."""

    node: Text
    #: When that was, by Redis's clock.
    at: float
    #: Threads that it kept busy.
    load: float


class Members:
    """What one node knows of all. Asking costs little while nothing has changed."""

    def __init__(self, caller: Caller, namespace: str, node: str) -> None:
        self._caller = caller
        self._namespace = namespace
        self._node = node
        self._key = keys.members(namespace)
        self._version = ""
        self.known: Mapping[str, Member] = {}
        #: Queue and shard → placement.
        self.placements: Mapping[tuple[str, int], Placement] = {}

    def tell(self, own: Member | None) -> bool:
        """
        Says what this node has, None that no shards may be dealt to it, and hears of the others. Returns whether
        anything has changed; if nodes have come or gone by this, the others are rung.
        """
        version, moved, *rows = self._caller.run(self._call(self._node, own, self._version))
        if version.decode() == self._version:
            return False
        met = list[Unreadable]()
        known = self._read(met, f"{self._key}:said", rows[0], _parse_member)
        self.known = {name.decode("utf-8", "replace"): member for name, member in known.items()}
        placements = self._read(met, f"{self._key}:placements", rows[1], _parse_placement)
        self.placements = dict(placements.values())
        self._caller.met.tell(self._key, met)
        self._version = version.decode()
        if moved:
            self._ring()
        return True

    def leave(self, nodes: Iterable[str]) -> None:
        """Says of nodes known to be dead that no shards may be dealt to them."""
        for node in nodes:
            self._caller.run(self._call(node, None, ""))

    def give(self, placements: Mapping[tuple[str, int], Placement], no_more: Iterable[tuple[str, int]]) -> None:
        """Gives these shards a placement, takes that of those away, and rings the others."""
        gone = [_name(shard) for shard in no_more]
        words = [word for shard, place in placements.items() for word in (_name(shard), msgspec.json.encode(place))]
        self._caller.run(
            Call("placements", [f"{self._key}:version", f"{self._key}:placements"], [len(gone), *gone, *words], int)
        )
        self._ring()

    def _call(self, node: str, member: Member | None, version: str) -> Call[list[Any]]:
        text = msgspec.json.encode(member) if member else b""
        names = [self._key, *(f"{self._key}:{what}" for what in ("said", "version", "placements"))]
        return Call("members", names, [node, text, LATE_AFTER, version], list)

    @staticmethod
    def _read(
        met: list[Unreadable], key: str, words: list[bytes], parse: Callable[[bytes, bytes], T]
    ) -> dict[bytes, T]:
        found = {}
        for name, said in list(zip(words[::2], words[1::2], strict=True))[:MOST]:
            what, remedy = f"{quoted(key)} {quoted(name)}", f"HDEL {quoted(key)} {quoted(name)}"
            if (value := parsed(met, what, remedy, parse, name, said)) is not None:
                found[name] = value
        return found

    def _ring(self) -> None:
        others = [node for node in self.known if node != self._node]
        try:
            self._caller.commands([("PUBLISH", keys.doorbell(self._namespace, node), HAND) for node in others])
        except ResponseError:  # who may not publish has them look with their next beat
            return


def read_placements(caller: Caller, namespace: str) -> dict[tuple[str, int], Placement]:
    """Queue and shard → the node that it was given to for its load. What can't be read, nodes tell of."""
    (texts,) = caller.read([("HGETALL", f"{keys.members(namespace)}:placements")], {})
    rows = texts.items() if isinstance(texts, Mapping) else pairs(texts)
    found = (parsed([], "", "", _parse_placement, name, text) for name, text in list(rows)[:MOST])
    return dict(row for row in found if row is not None)


def _name(shard: tuple[str, int]) -> str:
    return f"{shard[0]}:{shard[1]}"


def _parse_member(_: bytes, text: bytes) -> Member:
    if len(text) > MOST_BEAT_BYTES:
        raise ValueError(f"it has more than {MOST_BEAT_BYTES >> 20} MiB")
    return _MEMBER.decode(text)


def _parse_placement(name: bytes, text: bytes) -> tuple[tuple[str, int], Placement]:
    queue, _, index = name.decode().rpartition(":")
    return (queue, int(index)), _PLACEMENT.decode(text)


_MEMBER: Final = msgspec.json.Decoder(Member)
_PLACEMENT: Final = msgspec.json.Decoder(Placement)
