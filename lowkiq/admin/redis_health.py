"""Server: how Redis itself fares, and what about it endangers jobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from lowkiq.queue.call import Caller

#: Share of maxmemory from which people should know.
NEARLY_FULL = 0.8


class Server(msgspec.Struct, frozen=True):
    """What INFO tells."""

    version: str
    #: Bytes.
    memory: int
    #: Bytes, 0 for no limit.
    max_memory: int
    clients: int
    #: In words.
    persistence: str
    #: What should be changed, a sentence each.
    warnings: list[str]
    #: Seconds.
    uptime: int


def read_server(caller: Caller) -> Server:
    """How the server fares; of Redis Cluster, the node that answers."""
    info = caller.command("INFO")
    return Server(
        version=f"Valkey {info['valkey_version']}" if "valkey_version" in info else f"Redis {info['redis_version']}",
        memory=int(info.get("used_memory", 0)),
        max_memory=int(info.get("maxmemory", 0)),
        clients=int(info.get("connected_clients", 0)),
        persistence=_persistence(info),
        warnings=list(_warnings(info)),
        uptime=int(info.get("uptime_in_seconds", 0)),
    )


def _persistence(info: Mapping[str, Any]) -> str:
    if info.get("aof_enabled"):
        return "append-only file"
    return "snapshots, or none" if info.get("rdb_last_save_time") else "unknown"


def _warnings(info: Mapping[str, Any]) -> Iterator[str]:
    if not info.get("aof_enabled"):
        yield "no append-only file: what was accepted since the last snapshot is lost when Redis dies (appendonly yes)"
    if info.get("aof_enabled") and info.get("aof_last_write_status", "ok") != "ok":
        yield "the append-only file can't be written: see Redis's log, and whether its disk is full"
    if info.get("rdb_last_bgsave_status", "ok") != "ok":
        yield "the last snapshot failed: see Redis's log"
    yield from _memory_warnings(info)
    if info.get("role", "master") != "master":
        yield "this is a replica: jobs can't be written to it"
    if info.get("loading"):
        yield "it is still reading its data"


def _memory_warnings(info: Mapping[str, Any]) -> Iterator[str]:
    limit, used = int(info.get("maxmemory", 0)), int(info.get("used_memory", 0))
    policy = info.get("maxmemory_policy", "noeviction")
    if limit and policy != "noeviction":
        yield f"maxmemory-policy is {policy}: when memory is full it throws jobs away (maxmemory-policy noeviction)"
    if limit and used > limit * NEARLY_FULL:
        yield f"memory is {used / limit:.0%} full: when it is full, pushes are refused"
