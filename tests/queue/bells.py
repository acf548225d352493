"""Steps with the list on which an idle thread waits for pushes."""

from __future__ import annotations

from lowkiq.queue.bell import Heard, ListBell
from lowkiq.queue.call import Caller
from lowkiq.transport.connect import client_for_node


def bell_of(app, key: str = "bell") -> ListBell:
    connections = Caller(client_for_node(app.settings, 2)).connections
    assert connections
    return ListBell(connections, key)


def wait(bell: ListBell, seconds: float = 30, *, is_idle: bool = False) -> Heard:
    return bell.wait(seconds, is_idle=is_idle)


def is_open(rung) -> None:
    """Its owner has looked, and found nothing."""
    epoch = rung.owner("epoch")
    rung.caller.run(rung.shard.claim("n", epoch, int(rung.owner("claim") or 0) + 1, 10, 10, bytes))


def is_said_to_be_idle(rung, bell) -> bool:
    return bool(rung.redis.exists(f"{bell.key}:idle"))


def kill_listener(rung) -> None:
    for row in rung.redis.client_list():
        if row["cmd"] == "blpop":
            rung.redis.client_kill_filter(_id=row["id"])
