"""The connection on which a thread waits for its bell."""

from __future__ import annotations

import socket
import threading

import pytest
import redis

from lowkiq.transport.listener import PENDING, Listener
from tests.support import wait_until


@pytest.fixture
def peer_and_listener(monkeypatch):
    """A listener, and the socket on which a test speaks for Redis. Its connection is long due for a health check."""
    ours, theirs = socket.socketpair()

    class Pool:
        def get_connection(self):
            connection = redis.Connection(health_check_interval=1)
            connection._sock = ours
            return connection

        def release(self, connection):
            """Nothing is kept."""

    listener = Listener(Pool())
    yield theirs, listener
    theirs.close()
    ours.close()


def test_it_does_not_wait(peer_and_listener) -> None:
    _, listener = peer_and_listener
    assert listener.receive() is PENDING


def test_replies_that_come_together_are_read_one_by_one(peer_and_listener) -> None:
    peer, listener = peer_and_listener
    peer.sendall(b"+OK\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n-ERR no\r\n$-1\r\n")
    assert listener.receive() == b"OK"
    assert listener.receive() == [b"a", b"b"]
    assert isinstance(listener.receive(), redis.ResponseError)
    assert listener.receive() is None
    assert listener.receive() is PENDING


def test_a_reply_in_pieces_is_there_when_it_is_whole(peer_and_listener) -> None:
    peer, listener = peer_and_listener
    for piece in (b"$100000\r\n", b"x" * 60_000, b"x" * 40_000):
        peer.sendall(piece)
        assert listener.receive() is PENDING
    peer.sendall(b"\r\n")
    assert listener.receive() == b"x" * 100_000


def test_what_a_server_says_unasked_is_passed_over(peer_and_listener) -> None:
    peer, listener = peer_and_listener
    peer.sendall(b">2\r\n$6\r\nMOVING\r\n:1\r\n+OK\r\n")
    assert listener.receive() == b"OK"
    peer.sendall(b">2\r\n$6\r\nMOVING\r\n:1\r\n")
    assert listener.receive() is PENDING


def test_what_is_sent_is_all_that_is_sent(peer_and_listener) -> None:
    """A health check would wait for its reply, which is not there yet."""
    peer, listener = peer_and_listener
    listener.send([("BLPOP", "bell", 1)])
    assert peer.recv(1000) == b"*3\r\n$5\r\nBLPOP\r\n$4\r\nbell\r\n$1\r\n1\r\n"


def test_an_end_is_an_error(peer_and_listener) -> None:
    peer, listener = peer_and_listener
    peer.close()
    with pytest.raises(redis.ConnectionError, match="closed"):
        listener.receive()


def test_rubbish_is_an_error(peer_and_listener) -> None:
    peer, listener = peer_and_listener
    peer.sendall(b"HTTP/1.1 400 Bad Request\r\n")
    with pytest.raises(redis.RedisError):
        listener.receive()


def test_it_waits_for_a_reply_but_not_for_ever(peer_and_listener) -> None:
    peer, listener = peer_and_listener
    with pytest.raises(redis.TimeoutError):
        listener.wait(0.01)
    heard: list[bytes] = []
    thread = threading.Thread(target=lambda: heard.append(listener.wait(60)))
    thread.start()
    peer.sendall(b"+OK\r\n")
    wait_until(lambda: heard == [b"OK"])
    thread.join()
