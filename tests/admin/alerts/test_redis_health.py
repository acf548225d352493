"""Server: what is told of Redis itself, and what about it endangers jobs; and that a look does not wait for it."""

from __future__ import annotations

import signal
import time

import pytest
import redis

from lowkiq.admin.alerts.redis import read_redis_health
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


def test_a_real_server_is_warned_of_for_its_settings(caller):
    def told(name, value):
        caller.command("CONFIG", "SET", name, value)
        return [alert.text for alert in read_redis_health(caller).alerts]

    assert read_redis_health(caller).alerts == []
    assert told("maxmemory-policy", "allkeys-lru") == [], "memory has no limit"
    (evicts,) = told("maxmemory", 1 << 30)
    assert "maxmemory-policy is allkeys-lru" in evicts and "noeviction" in evicts
    (evicts,) = told("maxmemory-policy", "volatile-ttl")
    assert "throw away what expires, so limits and throttles but no jobs" in evicts and "unless" in evicts
    assert told("maxmemory-policy", "noeviction") == []
    (full,) = told("maxmemory", int(read_redis_health(caller).memory / 0.9))
    assert full.startswith(("Memory is 8", "Memory is 9")) and "full: when it is full, pushes are refused" in full
    assert told("maxmemory", 0) == []
    (forgets,) = told("appendonly", "no")
    assert "appendonly yes" in forgets
    assert read_redis_health(caller).persistence == "snapshots, or none"


@pytest.mark.parametrize(
    ("info", "warning"),
    [
        *(
            ({"used_memory": used, "maxmemory": 100}, f"Memory is {used} % full: when it is full, pushes are refused. ")
            for used in (81, 100, 130)
        ),
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
    for used in (0, 79, 80):
        assert warnings(used_memory=used, maxmemory=100) == []


def test_a_server_that_tells_little_is_told_of_all_the_same():
    server = read_redis_health(Told(aof_enabled=0))
    numbers = (server.memory, server.max_memory, server.clients, server.uptime)
    assert (server.version, numbers, server.persistence) == ("Redis 7.2.4", (0, 0, 0, 0), "unknown")
    assert read_redis_health(Told(valkey_version="8.1.0")).version == "Valkey 8.1.0"


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


def test_a_connection_that_redis_has_closed_is_opened_again(people, own_redis_server):
    assert people.ping()
    with own_redis_server.client() as other:
        other.client_kill_filter(_type="normal", skipme=True)
    assert people.ping()


@pytest.mark.parametrize("death", [signal.SIGTERM, signal.SIGKILL])
def test_a_redis_that_is_away_is_an_error_at_once_and_used_again_when_it_came_back(people, own_redis_server, death):
    people.ping()
    own_redis_server.stop(death)
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
