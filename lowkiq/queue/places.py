"""Places of a queue with `max_running`: each lets one batch run, on whichever node. The calls of places.lua."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from lowkiq.queue import keys
from lowkiq.queue.call import Call, Caller, redis_time

#: Rings a node whose turn it is (places.lua).
PLACE: Final = b"place"
#: Places of one call.
MOST_AT_ONCE: Final = 1_000


class QueuePlaces:
    """The calls about the places of one queue, for one node."""

    def __init__(self, namespace: str, queue: str, node: str, ttl: float) -> None:
        self.queue = queue
        self.prefix = keys.places(namespace, queue)
        self._node, self._ttl = node, ttl

    def name(self, number: int) -> str:
        """The name of one of this node's places."""
        return f"{self._node} {number}"

    def take(
        self, most: int, wanted: Sequence[str], given: Sequence[str] = (), dead: Sequence[str] = ()
    ) -> Call[list[str]]:
        """Gives back some places, those of nodes known to be dead as well, and takes as many as it may."""
        numbers = [most, self._ttl, len(given), len(dead)]
        return Call("places", [self.prefix], [self._node, *numbers, *given, *dead, *wanted], _decoded)

    def keep(self, most: int, places: Sequence[str]) -> Call[list[str]]:
        """Keeps places for a lease's time from now on; gives those that are lost."""
        return Call("keep_places", [self.prefix], [most, self._ttl, *places], _decoded)


class Running(NamedTuple):
    """The places of a queue, for people to see."""

    max_running: int
    #: Node → batches for which it has places.
    nodes: dict[str, int]
    #: Nodes that wait for a place, in the order of their turns.
    waiting: list[str]

    @property
    def running(self) -> int:
        """Places that are taken."""
        return sum(self.nodes.values())

    @property
    def is_full(self) -> bool:
        """True if a batch that is due has to wait for another to end."""
        return self.running >= self.max_running


def read_places(caller: Caller, namespace: str, queues: Sequence[str]) -> dict[str, Running]:
    """The places of those of these queues that have a `max_running`, or had one within the last day."""
    maxima = caller.read([("GET", keys.places(namespace, queue) + "max") for queue in queues], None)
    limited = {queue: int(most) for queue, most in zip(queues, maxima, strict=True) if most and most.isdigit()}
    if not limited:
        return {}
    now = f"{redis_time(caller):.6f}"
    commands: list[tuple[Any, ...]] = []
    for queue in limited:
        prefix = keys.places(namespace, queue)
        commands += [("ZRANGEBYSCORE", prefix + "taken", f"({now}", "+inf")]
        commands += [("ZRANGE", prefix + "rung", 0, -1), ("ZRANGE", prefix + "waiting", 0, -1)]
    replies = iter(caller.read(commands, []))
    found = {}
    for queue, most in limited.items():
        nodes: dict[str, int] = {}
        for place in _decoded(next(replies)):
            node = place.rpartition(" ")[0]
            nodes[node] = nodes.get(node, 0) + 1
        found[queue] = Running(most, nodes, list(dict.fromkeys([*_decoded(next(replies)), *_decoded(next(replies))])))
    return found


def _decoded(names: list[bytes]) -> list[str]:
    return [name.decode("utf-8", "replace") for name in names]
