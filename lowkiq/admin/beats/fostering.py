"""Fostering, as far as nodes ask one another for it: shards that nobody has, and nodes that may stand in for theirs."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec

from lowkiq.admin.beats.health import read_health
from lowkiq.queue import keys
from lowkiq.queue.call import Caller
from lowkiq.queue.shard import Shard
from lowkiq.queue.unreadable import parsed

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
