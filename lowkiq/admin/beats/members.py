"""Members: the nodes to which shards may be dealt, where nobody numbers nodes, and what each of them has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Final

import msgspec
from msgspec import Meta
from redis.exceptions import ResponseError

from lowkiq.admin.beats.hands import HAND
from lowkiq.admin.beats.health import LATE_AFTER, MOST_BEAT_BYTES, Shards
from lowkiq.queue import keys
from lowkiq.queue.call import Call, Caller
from lowkiq.queue.unreadable import Unreadable, parsed, quoted

#: Members that are read.
MOST: Final = 10_000


class Member(msgspec.Struct, frozen=True):
    """A node that runs queues. Its name is beside it."""

    #: How much it can do beside others: its threads.
    weight: Annotated[int, Meta(ge=1, le=1_000_000)]
    #: Queue → shards that it has; of a queue that it leaves alone there is none.
    owned: Shards


class Members:
    """What one node knows of all. Asking costs little while nothing has changed."""

    def __init__(self, caller: Caller, namespace: str, node: str) -> None:
        self._caller = caller
        self._namespace = namespace
        self._node = node
        self._version = ""
        self.known: Mapping[str, Member] = {}

    def tell(self, own: Member | None) -> bool:
        """
        Says what this node has, None that no shards may be dealt to it, and hears of the others. Returns whether
        anything has changed; if nodes have come or gone by this, the others are rung.
        """
        key = keys.members(self._namespace)
        text = msgspec.json.encode(own) if own else b""
        call = Call(
            "members", [key, f"{key}:said", f"{key}:version"], [self._node, text, LATE_AFTER, self._version], list
        )
        version, moved, *rows = self._caller.run(call)
        if version.decode() == self._version:
            return False
        met = list[Unreadable]()
        found = {}
        for name, said in list(zip(rows[::2], rows[1::2], strict=True))[:MOST]:
            what = f"{quoted(key)}:said {quoted(name)}"
            if member := parsed(met, what, f"HDEL {quoted(key)}:said {quoted(name)}", _parse, said):
                found[name.decode("utf-8", "replace")] = member
        self._caller.met.tell(key, met)
        self._version, self.known = version.decode(), found
        if moved:
            self._ring(found)
        return True

    def leave(self, nodes: Iterable[str]) -> None:
        """Says of nodes known to be dead that no shards may be dealt to them."""
        key = keys.members(self._namespace)
        for node in nodes:
            self._caller.run(Call("members", [key, f"{key}:said", f"{key}:version"], [node, "", LATE_AFTER, ""], list))

    def _ring(self, nodes: Iterable[str]) -> None:
        try:
            self._caller.commands(
                [("PUBLISH", keys.doorbell(self._namespace, node), HAND) for node in nodes if node != self._node]
            )
        except ResponseError:  # who may not publish has them look with their next beat
            return


def _parse(text: bytes) -> Member:
    if len(text) > MOST_BEAT_BYTES:
        raise ValueError(f"it has more than {MOST_BEAT_BYTES >> 20} MiB")
    return _MEMBER.decode(text)


_MEMBER: Final = msgspec.json.Decoder(Member)
