"""Places of a queue with `max_running`: each lets one batch run, on whichever node. The calls of places.lua."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lowkiq.queue import keys
from lowkiq.queue.call import Call

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


def _decoded(names: list[bytes]) -> list[str]:
    return [name.decode("utf-8", "replace") for name in names]
