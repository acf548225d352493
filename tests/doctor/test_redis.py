"""What the doctor makes of a Redis server, told by a made-up one."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from redis.exceptions import OutOfMemoryError, ReadOnlyError, ResponseError

from lowkiq.admin import probes
from lowkiq.admin.probes import Refusals
from lowkiq.doctor import redis_checks
from lowkiq.doctor.subject import Check, Verdict
from lowkiq.settings import Settings

INFO = {"redis_version": "7.2.4", "role": "master", "aof_enabled": 1, "used_memory": 10 << 20, "maxclients": 10_000,
        "connected_clients": 3}  # fmt: skip


def subject(config: dict[str, str] | None = None, *, is_spread: bool = False, **info: Any) -> Any:
    return SimpleNamespace(
        info=INFO | info,
        config=({"appendfsync": "everysec"} | (config or {})).get,
        caller=SimpleNamespace(is_spread=is_spread),
        settings=Settings(poll_interval=1.0),
        app=SimpleNamespace(workers={"orders": None}),
        url="redis://host", url_source="REDIS_URL", is_embedded=False,
        number_of_nodes=4, connections_of_a_node=15,
    )  # fmt: skip


def found(check: Check, config: dict[str, str] | None = None, **info: Any) -> list[Verdict]:
    return list(check(subject(config, **info)))


def the_one(check: Check, config: dict[str, str] | None = None, **info: Any) -> Verdict:
    (verdict,) = found(check, config, **info)
    assert (verdict.do is not None) == (verdict.level in {"warning", "problem"}), "what to do, where there is something"
    return verdict


@pytest.mark.parametrize(
    ("check", "info", "level", "says"),
    [
        (redis_checks.version, {}, "ok", "Redis 7.2.4"),
        (redis_checks.version, {"redis_version": "6.2.0"}, "ok", "Redis 6.2.0"),
        (redis_checks.version, {"redis_version": "6.0.20"}, "problem", "Redis 6.0.20 is too old"),
        (redis_checks.version, {"valkey_version": "8.1.0"}, "ok", "Valkey 8.1.0"),
        (redis_checks.role, {"role": "slave"}, "problem", "This Redis is a replica"),
        (redis_checks.role, {"cluster_enabled": 1}, "problem", "one node of Redis Cluster"),
        (redis_checks.persistence, {}, "ok", "append-only file: at most a second"),
        (redis_checks.persistence, {"aof_enabled": 0}, "warning", "since the last snapshot is lost"),
        (redis_checks.persistence, {"aof_last_write_status": "err"}, "problem", "append-only file can't be written"),
        (redis_checks.memory, {}, "ok", "10 MiB used, no maxmemory"),
        (redis_checks.memory, {"maxmemory": 100 << 20}, "ok", "10 of 100 MiB used"),
        (redis_checks.memory, {"maxmemory": 12 << 20}, "warning", "Memory is 83 % full"),
        (redis_checks.connections, {}, "ok", "3 of 10,000 connections are used; 4 nodes may need 60"),
        (redis_checks.connections, {"maxclients": 70}, "warning", "few are left for producers"),
        (redis_checks.connections, {"connected_clients": 9_000}, "warning", "few are left for producers"),
        (redis_checks.connections, {"maxclients": 59}, "problem", "some can't connect"),
    ],
)
def test_the_state_of_a_server(check: Check, info: dict[str, Any], level: str, says: str) -> None:
    verdict = the_one(check, **info)
    assert verdict.level == level
    assert says in verdict.says


def test_a_cluster_is_no_problem_for_a_url_of_one() -> None:
    assert list(redis_checks.role(subject(is_spread=True, cluster_enabled=1))) == []


@pytest.mark.parametrize(
    ("policy", "level", "says"),
    [
        ("always", "ok", "nothing is lost"),
        ("no", "warning", "half a minute may be lost"),
        ("", "ok", "this server doesn't tell"),
    ],
)
def test_how_often_a_server_syncs(policy: str, level: str, says: str) -> None:
    verdict = the_one(redis_checks.persistence, {"appendfsync": policy})
    assert verdict.level == level and says in verdict.says


def test_a_server_that_keeps_nothing_and_a_snapshot_that_failed() -> None:
    assert "nothing is kept on disk" in the_one(redis_checks.persistence, {"save": ""}, aof_enabled=0).says
    good, bad = found(redis_checks.persistence, rdb_last_bgsave_status="err")
    assert (good.level, bad.level) == ("ok", "warning")


def test_a_policy_that_evicts_is_a_problem_only_with_a_limit() -> None:
    without, memory = found(redis_checks.memory, maxmemory_policy="allkeys-lru")
    assert (without.level, memory.level) == ("note", "ok")
    bad, _ = found(redis_checks.memory, maxmemory_policy="allkeys-lru", maxmemory=100 << 20)
    assert bad.level == "problem" and bad.do and "noeviction" in bad.do


@pytest.mark.parametrize(
    ("error", "do"),
    [
        (redis.TimeoutError("Timeout reading from socket"), "whether it is overloaded or stopped"),
        (redis.AuthenticationError("invalid username-password pair"), "user or password of its URL"),
        (redis.exceptions.BusyLoadingError("Redis is loading"), "wait"),
        (redis.ConnectionError("max number of clients reached"), "raise its maxclients"),
        (redis.ConnectionError("Error 1 connecting: [SSL: WRONG_VERSION_NUMBER]"), "speaks TLS"),
        (redis.ConnectionError("Error 111 connecting. Connection refused."), "start Redis there"),
    ],
)
def test_why_redis_does_not_answer(monkeypatch: pytest.MonkeyPatch, error: Exception, do: str) -> None:
    def fail(caller: Any) -> float:
        raise error

    monkeypatch.setattr(probes, "ping", fail)
    verdict = the_one(redis_checks.answers)
    assert verdict.level == "problem" and str(error) in verdict.says and "from REDIS_URL" in verdict.says
    assert verdict.do and do in verdict.do


@pytest.mark.parametrize(
    ("offset", "error", "level", "says"),
    [
        (0.02, 0.001, "ok", "agree within 0.021 s"),
        (1.5, 0.1, "warning", "1.5 s ahead of this machine's: a perform_in made here is due by as much too early"),
        (-90.0, 0.1, "warning", "90.0 s behind this machine's: a perform_in made here is due by as much too late"),
        (1.5, 0.6, "ok", "agree"),
    ],
)
def test_clocks(monkeypatch: pytest.MonkeyPatch, offset: float, error: float, level: str, says: str) -> None:
    """A slow round trip tells less of the clock."""
    monkeypatch.setattr(probes, "clock_offset", lambda caller: (offset, error))
    verdict = the_one(redis_checks.clocks)
    assert verdict.level == level and says in verdict.says


@pytest.mark.parametrize(
    ("trips", "level", "says"),
    [
        ([0.0002] * 100, "ok", "median 0.2 ms, worst 0.2 ms of 100"),
        ([0.0002] * 99 + [0.25], "note", "worst 250.0 ms of 100: something holds up"),
        ([0.01] * 100, "warning", "a thread starts at most 100 slow batches a second"),
    ],
)
def test_latency(monkeypatch: pytest.MonkeyPatch, trips: list[float], level: str, says: str) -> None:
    left: Iterator[float] = iter(trips)
    monkeypatch.setattr(probes, "ping", lambda caller: next(left))
    verdict = the_one(redis_checks.latency)
    assert verdict.level == level and says in verdict.says


def test_a_slow_redis_is_not_measured_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(1000))
    monkeypatch.setattr("lowkiq.clock.monotonic", lambda: float(next(now)))
    monkeypatch.setattr(probes, "ping", lambda caller: 1.0)
    assert the_one(redis_checks.latency).says.count("of 2:") == 1


@pytest.mark.parametrize(
    ("refusals", "says", "do"),
    [
        (Refusals(["RPUSH", "SCRIPT LOAD"], [], None), "may not use RPUSH, SCRIPT LOAD", "USER +rpush +script|load"),
        (Refusals([], ["~lowkiq:*"], None), "may not use what ~lowkiq:* stands for", "USER ~lowkiq:*"),
    ],
)
def test_rights_that_are_missing(monkeypatch: pytest.MonkeyPatch, refusals: Refusals, says: str, do: str) -> None:
    monkeypatch.setattr(probes, "read_refusals", lambda *_: refusals)
    verdict = the_one(redis_checks.commands)
    assert verdict.level == "problem" and says in verdict.says and do in str(verdict.do)


@pytest.mark.parametrize(
    ("error", "do"),
    [
        (OutOfMemoryError("command not allowed when used memory > 'maxmemory'."), "raise its maxmemory"),
        (ReadOnlyError("You can't write against a read only replica."), "the primary"),
        (ResponseError("MISCONF Redis is configured to save RDB snapshots"), "disk full"),
        (ResponseError("NOREPLICAS Not enough good replicas to write."), "min-replicas-to-write"),
        (ResponseError("something new"), "see Redis's log"),
    ],
)
def test_writes_that_are_refused(monkeypatch: pytest.MonkeyPatch, error: redis.RedisError, do: str) -> None:
    monkeypatch.setattr(probes, "read_refusals", lambda *_: Refusals([], [], error))
    rights, writes = found(redis_checks.commands)
    assert (rights.level, writes.level) == ("ok", "problem")
    assert f"{type(error).__name__}: {error}" in writes.says and do in str(writes.do)


def test_a_bell_that_is_not_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "time_doorbell", lambda *_: None)
    verdict = the_one(redis_checks.doorbell)
    assert verdict.level == "warning" and "jobs start up to 1 s late" in verdict.says
