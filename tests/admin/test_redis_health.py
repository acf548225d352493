"""Server: what is told of Redis itself, and what about it endangers jobs; and that a look does not wait for it."""

from __future__ import annotations

import signal
import time

import pytest
import redis

from lowkiq.admin.redis_health import read_redis_health
from lowkiq.queue.call import Caller
from lowkiq.settings import Settings
from lowkiq.transport.connect import PEOPLE_CONNECTIONS, client_for_people
from tests.support import wait_until


@pytest.fixture
def people(own_redis_server):
    """A client such as the web view has."""
    client = client_for_people(Settings(redis_url=own_redis_server.url))
    yield client
    client.close()
    client.connection_pool.disconnect()


@pytest.fixture
def caller(people):
    return Caller(people)


class Told:
    """A caller that gives a made-up INFO."""

    def __init__(self, **info):
        self._info = {"redis_version": "7.2.4", "aof_enabled": 1, "role": "master"} | info

    def command(self, name):
        assert name == "INFO"
        return self._info


def warnings(**info):
    return [alert.text for alert in read_redis_health(Told(**info)).alerts]


def test_a_server_is_told_of(caller):
    caller.command("CONFIG", "SET", "maxmemory", 1 << 30)
    server = read_redis_health(caller)
    assert server.version.startswith(("Redis ", "Valkey "))
    assert server.version.split()[1][0].isdigit()
    assert 100_000 < server.memory < 1 << 30
    assert server.max_memory == 1 << 30
    assert server.clients >= 1
    assert 0 <= server.uptime < 3600
    assert server.persistence == "append-only file"


def test_a_server_that_keeps_jobs_has_no_warnings(caller):
    assert read_redis_health(caller).alerts == []


def test_a_server_without_an_append_only_file_is_warned_of(caller):
    caller.command("CONFIG", "SET", "appendonly", "no")
    server = read_redis_health(caller)
    (alert,) = server.alerts
    assert "appendonly yes" in alert.do
    assert server.persistence == "snapshots, or none"


def test_an_evicting_policy_is_warned_of_where_memory_has_a_limit(caller):
    caller.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    assert read_redis_health(caller).alerts == []
    caller.command("CONFIG", "SET", "maxmemory", 1 << 30)
    (alert,) = read_redis_health(caller).alerts
    assert "maxmemory-policy is allkeys-lru" in alert.says
    assert "noeviction" in alert.do


def test_memory_that_is_nearly_full_is_warned_of(caller):
    caller.command("CONFIG", "SET", "maxmemory", 1 << 30)
    assert read_redis_health(caller).alerts == []
    used = read_redis_health(caller).memory
    caller.command("CONFIG", "SET", "maxmemory", int(used / 0.9))
    (alert,) = read_redis_health(caller).alerts
    assert "full: when it is full, pushes are refused" in alert.says
    assert alert.says.startswith(("Memory is 8", "Memory is 9"))


@pytest.mark.parametrize("used", [0, 79, 80])
def test_up_to_four_fifths_there_is_room(used):
    assert warnings(used_memory=used, maxmemory=100) == []


@pytest.mark.parametrize("used", [81, 100, 130])
def test_above_four_fifths_memory_is_nearly_full(used):
    (told,) = warnings(used_memory=used, maxmemory=100)
    assert told.startswith(f"Memory is {used}% full: when it is full, pushes are refused. ")


@pytest.mark.parametrize(
    ("info", "warning"),
    [
        ({"aof_last_write_status": "err"}, "The append-only file can't be written"),
        ({"rdb_last_bgsave_status": "err"}, "The last snapshot failed"),
        ({"role": "slave"}, "This Redis is a replica: jobs can't be written to it"),
        ({"loading": 1}, "Redis is still reading its data"),
        ({"redis_version": "6.0.20"}, "Redis 6.0.20 is too old, so nodes refuse it"),
        ({"aof_enabled": 0}, "No append-only file"),
    ],
)
def test_what_endangers_jobs_is_warned_of(info, warning):
    (told,) = warnings(**info)
    assert told.startswith(warning)


def test_what_is_well_is_not_warned_of():
    assert warnings(aof_last_write_status="ok", rdb_last_bgsave_status="ok", loading=0) == []
    assert warnings(aof_enabled=0, aof_last_write_status="err") == warnings(aof_enabled=0)


def test_a_server_that_tells_little_is_told_of_all_the_same():
    server = read_redis_health(Told(aof_enabled=0))
    assert (server.version, server.memory, server.max_memory, server.clients, server.uptime) == (
        "Redis 7.2.4",
        0,
        0,
        0,
        0,
    )
    assert server.persistence == "unknown"


def test_valkey_is_called_by_its_name():
    assert read_redis_health(Told(valkey_version="8.1.0")).version == "Valkey 8.1.0"


# ── the client for people ───────────────────────────────────────────────────────────────────────────────────────────

#: Seconds that a slow machine may add to the two or four that are waited for.
PATIENCE = 25


@pytest.fixture
def stop_redis(own_redis_server):
    """Stops the process, so that it neither answers nor refuses."""
    process = own_redis_server.process
    yield lambda: process.send_signal(signal.SIGSTOP)
    process.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("is_connected", [False, True])
def test_a_redis_that_hangs_is_an_error_soon(people, stop_redis, is_connected):
    if is_connected:
        people.ping()
    stop_redis()
    started = time.monotonic()
    with pytest.raises(redis.RedisError):
        people.ping()
    assert time.monotonic() - started < PATIENCE


def test_who_waits_for_a_connection_waits_no_longer(people, stop_redis):
    connections = [people.connection_pool.get_connection() for _ in range(PEOPLE_CONNECTIONS)]
    started = time.monotonic()
    with pytest.raises(redis.RedisError):
        people.ping()
    assert time.monotonic() - started < PATIENCE
    for connection in connections:
        people.connection_pool.release(connection)
    assert people.ping()


def test_a_redis_that_is_away_is_an_error_at_once(people, own_redis_server):
    people.ping()
    own_redis_server.stop()
    with pytest.raises(redis.ConnectionError):
        people.ping()


def test_a_connection_that_redis_has_closed_is_opened_again(people, own_redis_server):
    assert people.ping()
    with own_redis_server.client() as other:
        other.client_kill_filter(_type="normal", skipme=True)
    assert people.ping()


def test_a_redis_that_came_back_is_used_again(people, own_redis_server):
    people.ping()
    own_redis_server.stop(signal.SIGKILL)
    with pytest.raises(redis.ConnectionError):
        people.ping()
    own_redis_server.start()
    assert wait_until(people.ping)


def test_it_answers_again_after_it_hung(people, stop_redis, own_redis_server):
    people.set("a", "1")
    stop_redis()
    with pytest.raises(redis.RedisError):
        people.get("a")
    own_redis_server.process.send_signal(signal.SIGCONT)
    assert people.get("a") == b"1"
