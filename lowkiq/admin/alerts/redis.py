"""
Redis: its version, memory and persistence, and the alerts of a server that may lose jobs, or refuses them.
Of what somebody else has written there, too.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from redis.exceptions import ResponseError

from lowkiq.admin.alerts.alert import NAMED, Alert, Severity, Thresholds
from lowkiq.admin.probes import read_config
from lowkiq.admin.words import plural
from lowkiq.queue.call import Caller
from lowkiq.queue.unreadable import Unreadable
from lowkiq.transport.connect import SET_POLICY, evicting_policy, is_too_old, is_volatile, server_name, what_it_evicts

#: What a shell takes as it stands; and the end of a name that was cut, so that nothing can be done with it.
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.:{} -]+")
_CUT: Final = re.compile(r"\.\.\. \([0-9,]+ bytes\)")


def of_unreadable(found: Sequence[Unreadable]) -> Iterator[Alert]:
    """An alert a value, for the first ones."""
    for one in found[:NAMED]:
        says = f"Redis holds something under {one.key} that Lowkiq can't read: {one.why}"
        do = f"See whether another version of Lowkiq wrote it; else remove it: {one.remedy}"
        yield Alert("unreadable", "bad", "", says, do, command=_in_shell(one.remedy), mark=one.key)
    if len(found) > NAMED:
        says = f"Redis holds {len(found) - NAMED:,} more values that Lowkiq can't read"
        yield Alert("unreadable", "bad", "", says, "See what else writes into this namespace")


def _in_shell(remedy: str) -> str:
    """A command of Redis as one of the shell, which must run nothing that a name contains: redis-cli unquotes it."""
    if _CUT.search(remedy):
        return ""
    return f"redis-cli {remedy}" if _PLAIN.fullmatch(remedy) else f"printf '%s\\n' {shlex.quote(remedy)} | redis-cli"


#: Where the view tells of Redis.
WHERE: Final = "/#redis"
#: Settings of the server that INFO does not tell.
CONFIG: Final = ("appendfsync", "save")

_Found = tuple[Severity, str, str, str, str]


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
    #: Bytes: the most that it ever had.
    peak_memory: int = 0


def read_redis_health(
    caller: Caller, thresholds: Thresholds | None = None, config: Mapping[str, str | None] | None = None
) -> RedisHealth:
    """The health of the server; of Redis Cluster, of the node that answers. Nothing is known where INFO is refused."""
    try:
        info = caller.command("INFO")
    except ResponseError:
        return RedisHealth("unknown", 0, 0, 0, "unknown", [], 0)
    snapshots = "snapshots, or none" if info.get("rdb_last_save_time") else "unknown"
    if (config or {}).get("save") == "":
        snapshots = "none"
    return RedisHealth(
        version=server_name(info),
        memory=int(info.get("used_memory", 0)),
        max_memory=int(info.get("maxmemory", 0)),
        clients=int(info.get("connected_clients", 0)),
        persistence="append-only file" if info.get("aof_enabled") else snapshots,
        alerts=alerts_of_redis(info, thresholds or Thresholds(), config or {}),
        uptime=int(info.get("uptime_in_seconds", 0)),
        peak_memory=int(info.get("used_memory_peak", 0)),
    )


def read_server_config(caller: Caller) -> dict[str, str | None]:
    """What INFO does not tell, as far as it may be read."""
    return {name: read_config(caller, name) for name in CONFIG}


def alerts_of_redis(
    info: Mapping[str, Any], thresholds: Thresholds | None = None, config: Mapping[str, str | None] | None = None
) -> list[Alert]:
    """Alerts of a Redis server, by its INFO, and by what is known of its configuration."""
    limits = thresholds or Thresholds()
    found = (*_kind(info), *_persistence(info, limits, config or {}), *_memory(info, limits), *_replicas(info, limits))
    return [
        Alert("Redis", severity, about, says, do, where=WHERE, command=command, mark=says.split()[1])
        for severity, about, says, do, command in found
    ]


def _kind(info: Mapping[str, Any]) -> Iterator[_Found]:
    if is_too_old(info):
        says = f"{server_name(info)} is too old, so nodes refuse it"
        yield "bad", "version", says, "Upgrade it to 6.2 or later, or to Valkey", ""
    if info.get("role", "master") != "master":
        yield "bad", "role", "This Redis is a replica: jobs can't be written to it", "Give the URL of its primary", ""
    if info.get("loading"):
        yield "warn", "role", "Redis is still reading its data", "Wait: nodes do the same", ""


def _persistence(info: Mapping[str, Any], thresholds: Thresholds, config: Mapping[str, str | None]) -> Iterator[_Found]:
    """What is broken is told in any case; what is chosen so, unless somebody has said that it is meant to be."""
    if not info.get("aof_enabled"):
        says = "No append-only file: what was accepted since the last snapshot is lost when Redis dies"
        if config.get("save") == "":
            says = "No append-only file and no snapshots: nothing is kept on disk"
        if thresholds.persistence:
            command = "redis-cli CONFIG SET appendonly yes"
            yield "warn", "persistence", says, "CONFIG SET appendonly yes, and the same in redis.conf", command
    elif info.get("aof_last_write_status", "ok") != "ok":
        says = "The append-only file can't be written, so Redis refuses all writes"
        yield "bad", "persistence", says, "See Redis's log, and whether its disk is full", ""
    elif config.get("appendfsync") == "no" and thresholds.persistence:
        says = "Append-only file, but appendfsync is no: half a minute may be lost with its machine"
        command = "redis-cli CONFIG SET appendfsync everysec"
        yield "warn", "persistence", says, "CONFIG SET appendfsync everysec, and the same in redis.conf", command
    if info.get("rdb_last_bgsave_status", "ok") != "ok":
        do = "See Redis's log: its disk may be full, or memory too short to fork (vm.overcommit_memory=1)"
        yield "warn", "persistence", "The last snapshot failed; by default Redis then refuses writes", do, ""


def _memory(info: Mapping[str, Any], thresholds: Thresholds) -> Iterator[_Found]:
    limit, used = int(info.get("maxmemory", 0)), int(info.get("used_memory", 0))
    if policy := evicting_policy(info):
        unless = ", unless volatile_eviction is set" if is_volatile(policy) else ""
        says = f"The maxmemory-policy is {policy}: when memory is full it would {what_it_evicts(policy)}"
        do = f"{SET_POLICY}, or give Lowkiq a Redis of its own"
        command = "redis-cli CONFIG SET maxmemory-policy noeviction"
        yield "warn" if unless else "bad", "memory", f"{says}. Nodes refuse it{unless}", do, command
    if limit and thresholds.memory and used > limit * thresholds.memory:
        severity: Severity = "bad" if used >= limit else "warn"
        says = f"Memory is {100 * used / limit:.0f} % full: when it is full, pushes are refused"
        yield severity, "memory", says, "Raise maxmemory, or run more nodes to work the queues off", ""


def _replicas(info: Mapping[str, Any], thresholds: Thresholds) -> Iterator[_Found]:
    """A push waits for `wait_replicas`; with fewer it is refused, though it is there."""
    if info.get("connected_slaves") is None or info.get("role", "master") != "master":
        return
    online = int(info["connected_slaves"])
    if online < thresholds.replicas:
        says = f"Redis has {plural(online, 'replica')}, but pushes wait for {thresholds.replicas}: each of them fails"
        yield "bad", "replicas", says, "Bring the replicas back, or lower wait_replicas", ""
