"""Commands over the connections of a client's pool."""

from __future__ import annotations

import os
import signal
import socket
import threading

import pytest
import redis
from fakeredis import FakeRedis
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import InvalidResponse, ResponseError
from redis.retry import Retry

from lowkiq import Lowkiq, PushFailed
from lowkiq.transport.server import PART, Connections, Server
from tests.support import wait_until


@pytest.fixture
def make_connections(redis_server):
    made = []

    def make(number: int = 1, timeout: float = 20.0) -> Connections:
        pool = redis.BlockingConnectionPool.from_url(redis_server.url, max_connections=number, timeout=timeout)
        made.append(pool)
        connections = Connections.of(redis.Redis.from_pool(pool))
        assert connections
        return connections

    yield make
    for pool in made:
        pool.disconnect()


def test_each_command_has_its_reply_or_its_error(make_connections) -> None:
    before, error, after = make_connections().pipeline([("ECHO", "a"), ("INCR",), ("ECHO", "b")])
    assert (before, after) == (b"a", b"b")
    assert isinstance(error, ResponseError)


def test_what_is_sent_in_parts_has_its_replies_in_order(make_connections) -> None:
    texts = [str(n) * (PART // 2 + n) for n in range(7)]
    replies = make_connections().pipeline([("ECHO", text) for text in texts])
    assert replies == [text.encode() for text in texts]


def test_a_connection_that_the_server_has_closed_is_an_error_once(make_connections, redis_server) -> None:
    connections = make_connections(2)  # one of which stays with them
    ((id,),) = (connections.pipeline([("CLIENT", "ID")]),)
    redis_server.client().client_kill_filter(_id=id)
    with pytest.raises(RedisConnectionError):
        connections.pipeline([("PING",)])
    assert connections.pipeline([("ECHO", "a")]) == [b"a"]


def test_what_is_sent_in_parts_is_sent_again_as_a_whole(redis_server) -> None:
    texts = [str(n) * PART for n in range(5)]
    pool = redis.BlockingConnectionPool.from_url(redis_server.url, retry=Retry(NoBackoff(), 1))
    connections = Connections(pool)
    (id,) = connections.pipeline([("CLIENT", "ID")])
    redis_server.client().client_kill_filter(_id=id)
    assert connections.pipeline([("ECHO", text) for text in texts]) == [text.encode() for text in texts]
    pool.disconnect()


class Broken:
    """A pool whose only connection breaks whenever something is sent."""

    max_connections = 2

    def __init__(self, retries: int, error: Exception) -> None:
        self.retry = Retry(NoBackoff(), retries)
        self.error = error
        self.socket_timeout = 1.0
        self._sock: socket.socket | None = socket.socket()
        self.tries = self.disconnects = 0

    def get_connection(self) -> Broken:
        return self

    def send_packed_command(self, parts: object) -> None:
        self.tries += 1
        raise self.error

    def disconnect(self) -> None:
        if self._sock:
            self._sock.close()
        self._sock = None
        self.disconnects += 1

    def connect(self) -> None:
        self._sock = socket.socket()


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_it_tries_as_often_as_the_client_does(retries):
    broken = Broken(retries, RedisConnectionError("broken"))
    with pytest.raises(RedisConnectionError, match="broken"):
        Connections(broken).pipeline([("PING",)])
    assert broken.tries == 1 + retries
    assert broken.disconnects >= broken.tries, "no try hears a reply to the one before"


@pytest.mark.parametrize("kind", [ValueError, InvalidResponse, OSError])
def test_what_the_client_does_not_repeat_is_not_repeated(kind):
    broken = Broken(3, kind("not of the connection"))
    with pytest.raises(kind, match="not of the connection"):
        Connections(broken).pipeline([("PING",)])
    assert (broken.tries, broken.disconnects) == (1, 1)


def run_at_once(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)


def test_threads_share_no_more_connections_than_the_pool_may_have(make_connections) -> None:
    connections = make_connections(2)
    heard: list[list[bytes]] = []

    def talk(name: str) -> None:
        heard.extend(connections.pipeline([("ECHO", f"{name} {n}")]) == [f"{name} {n}".encode()] for n in range(300))

    run_at_once([threading.Thread(target=talk, args=(name,)) for name in "abcde"])
    assert heard == [True] * 1500


def test_who_waits_too_long_for_a_connection_is_told(make_connections) -> None:
    connections = make_connections(1, timeout=0.05)
    blocked = threading.Thread(target=connections.pipeline, args=([("BLPOP", "nothing", "1")],))
    blocked.start()
    wait_until(lambda: not connections._idle and connections.pool._connections)
    with pytest.raises(RedisConnectionError, match="No connection available"):
        while blocked.is_alive():
            connections.pipeline([("PING",)])
    blocked.join()


def test_a_pipeline_that_is_interrupted_leaves_no_reply_for_the_next(make_connections) -> None:
    connections = make_connections()
    connections.pipeline([("PING",)])

    def interrupt(number, frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(KeyboardInterrupt):
            connections.pipeline([("ECHO", "first"), ("BLPOP", "nothing", "1")])
    finally:
        signal.signal(signal.SIGALRM, before)
    assert connections.pipeline([("ECHO", "next")]) == [b"next"]


def test_a_child_does_not_use_its_parents_connections(make_connections) -> None:
    connections = make_connections()
    (id,) = connections.pipeline([("CLIENT", "ID")])
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        (own,) = connections.pipeline([("CLIENT", "ID")])
        os.write(writer, str(own).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert int(os.read(reader, 100)) != id
    assert connections.pipeline([("CLIENT", "ID")]) == [id]
    os.close(reader)
    os.close(writer)


def test_clients_without_sockets_have_none() -> None:
    assert Connections.of(FakeRedis()) is None


@pytest.mark.parametrize("number", [1, 2, 5])
def test_the_clients_own_commands_find_a_connection_after_every_thread_has_talked(redis_server, number) -> None:
    pool = redis.BlockingConnectionPool.from_url(redis_server.url, max_connections=number, timeout=0.5)
    client = redis.Redis.from_pool(pool)
    connections = Connections.of(client)
    assert connections
    together = threading.Barrier(number)

    def talk() -> None:
        for _ in range(3):
            together.wait(60)
            connections.pipeline([("PING",)])

    run_at_once([threading.Thread(target=talk) for _ in range(number)])
    assert client.ping()
    pool.disconnect()


class OlderPool(redis.BlockingConnectionPool):
    """As redis-py before 7 has it, which Celery's `redis` extra asks for."""

    def disconnect(self) -> None:  # type: ignore[override]
        super().disconnect()


def test_idle_connections_are_closed_whatever_redis_py_calls_it(redis_server) -> None:
    pool = OlderPool.from_url(redis_server.url, max_connections=4)
    idle, used = pool.get_connection(), pool.get_connection()
    pool.release(idle)
    server = Server(redis.Redis.from_pool(pool))
    server.leave()
    assert idle._sock is None and used._sock is not None
    used.disconnect()


def test_sentinels_that_can_t_be_asked_are_told_by_their_addresses() -> None:
    """redis-py shows the clients, whose text is 300 characters for each."""
    app = Lowkiq(redis_url="redis+sentinel://:hush@127.0.0.1:1,127.0.0.1:2/mymaster", push_timeout=0.5)
    worker = app.worker(queue_name="q")(lambda jobs: None)
    with pytest.raises(PushFailed) as caught:
        worker.perform_async([{"id": 1}])
    told = str(caught.value)
    assert "no primary of 'mymaster': the sentinels 127.0.0.1:1, 127.0.0.1:2 can't be asked: " in told
    assert "<" not in told and "hush" not in told and "see whether it runs" in told
    app.close()
