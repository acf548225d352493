"""The health of a Redis server, by its INFO."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from lowkiq.admin.alerts import Alert, alerts_of_redis
from lowkiq.queue.call import Caller
from lowkiq.transport.connect import server_name


class RedisHealth(msgspec.Struct, frozen=True):
    """A server's version, memory, clients, persistence and alerts."""

    version: str
    #: Bytes.
    memory: int
    #: Bytes, 0 for no limit.
    max_memory: int
    clients: int
    #: In words.
    persistence: str
    alerts: list[Alert]
    #: Seconds.
    uptime: int


def read_redis_health(caller: Caller) -> RedisHealth:
    """The health of the server; of Redis Cluster, of the node that answers."""
    info = caller.command("INFO")
    return RedisHealth(
        version=server_name(info),
        memory=int(info.get("used_memory", 0)),
        max_memory=int(info.get("maxmemory", 0)),
        clients=int(info.get("connected_clients", 0)),
        persistence=_persistence(info),
        alerts=alerts_of_redis(info),
        uptime=int(info.get("uptime_in_seconds", 0)),
    )


def _persistence(info: Mapping[str, Any]) -> str:
    if info.get("aof_enabled"):
        return "append-only file"
    return "snapshots, or none" if info.get("rdb_last_save_time") else "unknown"
