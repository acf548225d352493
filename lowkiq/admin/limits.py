"""Limits: how many batches of queues with `max_running` run, on which nodes, and who waits for one to end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from lowkiq.admin.live import LiveSetting, read_live
from lowkiq.admin.words import plural, printable
from lowkiq.queue import keys
from lowkiq.queue.call import Caller, redis_time

#: Nodes that a sentence names, places that are read of a queue, and digits of a limit.
NAMED: Final = 3
MOST_PLACES: Final = 10_000
DIGITS: Final = 9


class Limit(msgspec.Struct, frozen=True):
    """The places of a queue with `max_running`."""

    max_running: Annotated[int, Meta(description="Batches that may run at once, on all nodes.")]
    nodes: Annotated[dict[str, int], Meta(description="Node → batches for which it has a place.")]
    waiting: Annotated[list[str], Meta(description="Nodes that wait for a place, in the order of their turns.")]

    @property
    def running(self) -> int:
        """Places that are taken."""
        return sum(self.nodes.values())

    @property
    def is_reached(self) -> bool:
        """True if a batch that is due has to wait for another to end."""
        return self.running >= self.max_running

    @property
    def text(self) -> str:
        """The same in a sentence."""
        says = f"{self.running:,} of {self.max_running:,} running (max_running)"
        if self.nodes:
            named = (f"{printable(node, 80)} {count:,}" for node, count in islice(sorted(self.nodes.items()), NAMED))
            more = f" and {len(self.nodes) - NAMED:,} more" if len(self.nodes) > NAMED else ""
            says += f": {', '.join(named)}{more}"
        if self.waiting:
            says += f"; {plural(len(self.waiting), 'node')} {'waits' if len(self.waiting) == 1 else 'wait'} for a place"
        return says


def read_limits(
    caller: Caller, namespace: str, queues: Iterable[str], live: Mapping[str, Mapping[str, LiveSetting]] | None = None
) -> dict[str, Limit]:
    """Those of these queues that have a limit, as people have set it or else as a node has said within the last day."""
    queues, live = list(queues), read_live(caller, namespace) if live is None else live
    told = caller.read([("GET", keys.places(namespace, queue) + "max") for queue in queues], None)
    most = {
        queue: int(text)
        for queue, text in zip(queues, told, strict=True)
        if isinstance(text, bytes) and text.isdigit() and len(text) <= DIGITS
    }
    for queue in queues:
        if setting := live.get(queue, {}).get("max_running"):
            most.pop(queue, None)
            if isinstance(setting.value, int):
                most[queue] = setting.value
    return _read(caller, namespace, most) if most else {}


def _read(caller: Caller, namespace: str, most: Mapping[str, int]) -> dict[str, Limit]:
    now = f"({redis_time(caller):.6f}"
    commands: list[tuple[Any, ...]] = []
    for queue in most:
        prefix = keys.places(namespace, queue)
        commands.append(("ZRANGEBYSCORE", prefix + "taken", now, "+inf", "LIMIT", 0, MOST_PLACES))
        commands += [("ZRANGE", prefix + name, 0, MOST_PLACES - 1) for name in ("rung", "waiting")]
    replies = iter(caller.read(commands, []))
    found = {}
    for queue, limit in most.items():
        nodes: dict[str, int] = {}
        for place in next(replies):
            node = _text(place.rpartition(b" ")[0])
            nodes[node] = nodes.get(node, 0) + 1
        waiting = [*next(replies), *next(replies)]
        found[queue] = Limit(limit, nodes, list(dict.fromkeys(map(_text, waiting))))
    return found


def _text(name: bytes) -> str:
    return name.decode("utf-8", "backslashreplace")
