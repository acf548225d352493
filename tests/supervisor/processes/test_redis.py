"""The embedded Redis: private, persistent, restarted when it dies, and one supervisor's only."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
from pathlib import Path

import psutil
import pytest
import redis

from lowkiq_supervisor.errors import BootError
from lowkiq_supervisor.processes.embedded_redis import EmbeddedRedis
from lowkiq_supervisor.processes.redis_servers import find_server
from tests.harness import Supervised

AT_ONCE = {"first_delay": 0.01}


@pytest.fixture(autouse=True)
def _a_server_is_there() -> None:
    try:
        find_server()
    except BootError:
        if os.environ.get("CI"):
            raise
        pytest.skip("no redis-server here")


def supervisor_with_redis(directory: Path, behaviour: str = "obedient") -> Supervised:
    return Supervised.doing(behaviour, directory, nodes=1, embedded=True, policy=AT_ONCE)


def client(directory: Path) -> redis.Redis:
    return redis.Redis(unix_socket_path=str(directory / ".lowkiq/redis/redis.sock"))


def test_redis_starts_before_the_nodes_which_are_told_its_url_and_stops_after_them(tmp_path: Path) -> None:
    with supervisor_with_redis(tmp_path).ready(1) as supervisor:
        supervisor.end()
        steps = [(line["event"], line["slot"]) for line in supervisor.log() if "slot" in line]
        order = [("ready", "redis"), ("started", "node 0/1"), ("ended", "node 0/1"), ("ended", "redis")]
        assert [step for step in steps if step in order] == order
        environment = json.loads((tmp_path / "env-0").read_text())
        assert environment["LOWKIQ_REDIS_URL"] == f"unix://{tmp_path}/.lowkiq/redis/redis.sock"


def test_data_outlives_the_supervisor(tmp_path: Path) -> None:
    with supervisor_with_redis(tmp_path).ready(1) as first, client(tmp_path) as connection:
        connection.set("key", "kept")
        first.end()
    with supervisor_with_redis(tmp_path).ready(1), client(tmp_path) as connection:
        assert connection.get("key") == b"kept"


def test_a_term_for_all_processes_of_a_service_ends_it_after_the_nodes(tmp_path: Path) -> None:
    """As systemd and Heroku send it: to each process, not only to the first."""
    with supervisor_with_redis(tmp_path).ready(1) as supervisor, client(tmp_path) as connection:
        os.kill(supervisor.pid("redis"), signal.SIGTERM)
        assert connection.ping()
        supervisor.end()
        (end,) = supervisor.events("ended", "redis")
        assert end["reason"] == "exit code 0"
        assert len(supervisor.events("started", "redis")) <= 1


def test_it_is_restarted_when_killed_with_its_data_while_nodes_go_on(tmp_path: Path) -> None:
    with supervisor_with_redis(tmp_path).ready(1) as supervisor, client(tmp_path) as connection:
        connection.set("key", "kept")
        os.kill(supervisor.pid("redis"), signal.SIGKILL)
        supervisor.until_logged("ready", 2, "redis")
        with client(tmp_path) as again:
            assert again.get("key") == b"kept"
        assert len(supervisor.events("started", "node 0/1")) == 1
        supervisor.end()


def test_it_is_not_on_the_network_and_only_its_user_gets_in(tmp_path: Path) -> None:
    with supervisor_with_redis(tmp_path).ready(1) as supervisor, client(tmp_path) as connection:
        server = psutil.Process(supervisor.pid("redis"))
        assert server.net_connections("inet") == []
        assert connection.config_get("port")["port"] == "0"
        directory = tmp_path / ".lowkiq/redis"
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        assert stat.S_IMODE((directory / "redis.sock").stat().st_mode) == 0o700
        others = {str(one): stat.S_IMODE(one.stat().st_mode) & 0o077 for one in directory.rglob("*")}
        assert not any(others.values()), others


def test_it_keeps_everything_and_evicts_nothing(tmp_path: Path) -> None:
    with supervisor_with_redis(tmp_path).ready(1), client(tmp_path) as connection:
        wanted = {"appendonly": "yes", "appendfsync": "everysec", "maxmemory-policy": "noeviction", "save": ""}
        assert {name: connection.config_get(name)[name] for name in wanted} == wanted


def test_a_second_supervisor_is_refused(tmp_path: Path) -> None:
    with supervisor_with_redis(tmp_path).ready(1) as first:
        with supervisor_with_redis(tmp_path) as second:
            assert second.exit_code() == 3
            error = second.events("cannot_start")[0]["error"]
            assert f"another supervisor (process {first.process.pid})" in error
            assert "LOWKIQ_REDIS_URL" in error
        assert client(tmp_path).ping()


def test_after_a_sigkill_nothing_is_left_and_the_next_supervisor_starts_with_the_data(tmp_path: Path) -> None:
    with supervisor_with_redis(tmp_path).ready(1) as first, client(tmp_path) as connection:
        connection.set("key", "kept")
        first.process.kill()
        first.process.wait()
        with supervisor_with_redis(tmp_path) as second:  # at once: the server of the first may still be ending
            second.until_ready(1)
            with client(tmp_path) as again:
                assert again.get("key") == b"kept"
            assert first.nothing_is_left()


def test_when_no_server_can_start_the_exit_is_3_with_the_end_of_its_log(tmp_path: Path) -> None:
    directory = tmp_path / ".lowkiq/redis"
    directory.mkdir(parents=True)
    (directory / "appendonly.aof").write_text("nonsense\n")
    with supervisor_with_redis(tmp_path) as supervisor:
        supervisor.ends(3)
        assert "Bad file format" in supervisor.events("redis_failed")[0]["last_lines"]
        assert not supervisor.events("started", "node 0/1")


def test_term_while_redis_starts_ends_everything(tmp_path: Path) -> None:
    with supervisor_with_redis(tmp_path) as supervisor:
        supervisor.until_logged("started", 1, "redis")
        supervisor.end()


def test_a_server_that_is_not_ours_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lowkiq_supervisor.processes.embedded_redis.PING_LIMIT", 10)
    embedded = EmbeddedRedis(tmp_path)
    (tmp_path / "redis").mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(embedded.socket_path))
        listener.listen()
        if (stranger := os.fork()) == 0:
            connection = listener.accept()[0]
            connection.recv(64)
            connection.sendall(b"+PONG\r\n")
            connection.recv(64)  # until the other side has read it, and closes
            os._exit(0)
        with pytest.raises(BootError, match="isn't ours"):
            embedded.prepare()
    os.waitpid(stranger, 0)
    embedded.close()


def test_a_path_too_long_for_a_socket_says_what_to_set(tmp_path: Path) -> None:
    with pytest.raises(BootError, match=r"too long for a unix socket \(\d+ bytes, at most 107\).*LOWKIQ_STATE_DIR"):
        EmbeddedRedis(tmp_path / ("d" * 100)).prepare()


def test_an_older_server_is_refused_where_it_would_overlook_the_data(tmp_path: Path) -> None:
    (tmp_path / "redis/appendonlydir").mkdir(parents=True)
    old = tmp_path / "redis-server"
    old.write_text("#!/bin/sh\necho 'Redis server v=6.2.14 sha=0:0'\n")
    old.chmod(0o755)
    embedded = EmbeddedRedis(tmp_path, server=old)
    with pytest.raises(BootError, match=r"6\.2\.14, which would not see them"):
        embedded.prepare()
    embedded.close()
