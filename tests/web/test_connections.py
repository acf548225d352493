"""Connections that never say what they want keep nobody from an answer."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import httpx
import pytest

from lowkiq import Lowkiq, clock
from lowkiq.web import connections, server
from lowkiq.web.application import STATIC
from lowkiq.web.connections import Limit
from lowkiq.web.security import guard
from tests.harness import Supervised
from tests.support import wait_until
from tests.web.conftest import served
from tests.web.test_server import SERVER, url_of

TOKEN = "a-token-of-the-tests"
KNOWN = {"Authorization": f"Bearer {TOKEN}"}


#: Seconds that headers have here; elsewhere ten.
WITHIN = 4.0
SHORT = f"from lowkiq.web import connections\nconnections.HEADERS_WITHIN = {WITHIN}\n{SERVER}"


@pytest.fixture
def url(app: Lowkiq, tmp_path: Path) -> Iterator[str]:
    with ExitStack() as stack:
        environment = {"LOWKIQ_REDIS_URL": app.settings.redis_url, "LOWKIQ_NAMESPACE": app.settings.namespace}
        environment |= {"LOWKIQ_WEB_TOKEN": TOKEN}
        yield url_of(stack.enter_context(Supervised(tmp_path, ["-c", SHORT], environment)))


@pytest.fixture
def connect(url: str) -> Iterator[Callable[[bytes], socket.socket]]:
    with ExitStack() as stack:
        address = ("127.0.0.1", httpx.URL(url).port)

        def open_with(data: bytes) -> socket.socket:
            connection = stack.enter_context(socket.create_connection(address, 20))
            connection.sendall(data)
            return connection

        yield open_with


def test_a_request_with_two_lengths_has_none_behind_it(connect: Callable[[bytes], socket.socket]) -> None:
    both = b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n"
    for lengths in (both, b"".join(reversed(both.splitlines(keepends=True)))):
        connection = connect(
            b"POST /sign-in HTTP/1.1\r\nHost: h\r\n" + lengths + b"\r\n0\r\n\r\n"
            b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n"
        )
        answer = connection.makefile("rb").read()
        assert answer.startswith(b"HTTP/1.1 400 "), answer
        assert answer.count(b"HTTP/1.1 ") == 1


def is_closed(connection: socket.socket) -> bool:
    connection.settimeout(60)
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_600_unfinished_ones_keep_neither_probes_nor_pages(url: str, connect: Callable[[bytes], socket.socket]) -> None:
    unfinished = [connect(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ") for _ in range(600)]
    for path in ("healthz", "readyz", "api/v1/stats", ""):
        assert httpx.get(f"{url}{path}", headers=KNOWN, timeout=60).status_code == 200
    started = clock.monotonic()
    assert is_closed(unfinished[0])
    assert is_closed(unfinished[-1])
    assert clock.monotonic() - started < WITHIN + 30


@pytest.mark.parametrize("beginning", [b"", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"])
def test_headers_have_their_time_also_those_of_a_later_request(
    connect: Callable[[bytes], socket.socket], beginning: bytes
) -> None:
    connection = connect(beginning)
    if beginning:
        with HTTPResponse(connection) as response:
            response.begin()
            assert response.read() and response.status == 200
    started = clock.monotonic()
    connection.sendall(b"GET /healthz HTTP/1.1\r\nX: ")
    assert is_closed(connection)
    assert clock.monotonic() - started > WITHIN / 2


def test_whoever_sends_them_slowly_but_in_time_is_answered(connect: Callable[[bytes], socket.socket]) -> None:
    connection = connect(b"GET /healthz HTTP/1.1\r\n")
    for line in (b"Host: localhost\r\n", b"Connection: close\r\n", b"\r\n"):
        connection.sendall(line)
    assert connection.recv(4096).startswith(b"HTTP/1.1 200")


Serve = Callable[[Any], tuple[Limit, dict[Any, Any], Callable[[bytes], socket.socket]]]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """
    few(asgi) → served as `lowkiq web` does it, with five places, of which three for who keeps it waiting: the limit,
    who is waited for, and a way to connect.
    """
    monkeypatch.setattr(connections, "MOST_WAITED_FOR", 3)
    with ExitStack() as stack:

        def serve(asgi: Any) -> tuple[Limit, dict[Any, Any], Callable[[bytes], socket.socket]]:
            limit = Limit(asgi, most=5)
            config = server._config(limit)
            address = ("127.0.0.1", httpx.URL(stack.enter_context(served(config))).port)

            def connect(data: bytes) -> socket.socket:
                connection = stack.enter_context(socket.socket())
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
                connection.settimeout(60)
                connection.connect(address)
                connection.sendall(data)
                return connection

            return limit, config.http.args[0], connect

        yield serve


@pytest.mark.parametrize("before", [b"", b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n"])
def test_slow_bodies_leave_places_for_others(
    few: Serve, make_web: Any, monkeypatch: pytest.MonkeyPatch, before: bytes
) -> None:
    monkeypatch.setattr(guard, "BODY_TIMEOUT", 600.0)
    limit, waiting, connect = few(make_web(token=TOKEN))
    post = b"POST /sign-in HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\na"
    slow = [connect(before + post) for _ in range(8)]
    wait_until(lambda: len(waiting) == limit._answering == 3)
    answer = connect(f"GET /api/v1/stats HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
    assert answer.recv(12) == b"HTTP/1.1 200"
    assert all(is_closed(one) for one in slow[:5] if not before)


def test_a_body_in_time_is_taken(few: Serve, make_web: Any) -> None:
    limit, waiting, connect = few(make_web(token=TOKEN))
    post = connect(b"POST /sign-in HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\na=")
    wait_until(lambda: limit._answering)
    post.sendall(b"bc")
    assert post.recv(12) == b"HTTP/1.1 401"
    wait_until(lambda: not waiting)


async def long_answer(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"connection", b"close")]})
    await send({"type": "http.response.body", "body": bytes(LONG)})


LONG = 16 << 20


def test_an_answer_that_nobody_reads_is_given_up(few: Serve, make_web: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a place is free again, since the rest of it waits in the connection."""
    monkeypatch.setattr(connections, "READ_WITHIN", 0.5)
    asked = b"GET /static/live.js HTTP/1.1\r\nHost: h\r\n\r\n" * 300
    for asgi, whole in ((make_web(token=TOKEN), 300 * (STATIC / "live.js").stat().st_size), (long_answer, LONG)):
        limit, waiting, connect = few(asgi)
        connection = connect(asked)
        wait_until(lambda waiting=waiting: is_unread(waiting))
        wait_until(lambda limit=limit, waiting=waiting: not waiting and not limit._answering)
        assert read_all(connection) < whole


def test_who_reads_gets_all_of_it(few: Serve) -> None:
    _, waiting, connect = few(long_answer)
    connection = connect(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    wait_until(lambda: is_unread(waiting))
    assert read_all(connection) > LONG
    wait_until(lambda: not waiting)


def is_unread(waiting: dict[Any, Any]) -> bool:
    return any(connection.flow.write_paused for connection in [*waiting])


def read_all(connection: socket.socket) -> int:
    """Reads to the end, and counts."""
    count = 0
    with suppress(ConnectionResetError):
        while read := connection.recv(1 << 20):
            count += len(read)
    return count


def test_beyond_the_limit_requests_are_told_to_come_back_and_probes_answered() -> None:
    async def scenario() -> list[int]:
        free = asyncio.Event()

        async def slow(scope: Any, receive: Any, send: Any) -> None:
            if scope["path"] == "/slow":
                await free.wait()
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b""})

        limited = Limit(slow, most=2)

        async def ask(path: str) -> int:
            sent: list[Any] = []

            async def send(message: Any) -> None:
                sent.append(message)

            async def receive() -> Any:
                return {"type": "http.disconnect"}

            await limited({"type": "http", "path": path, "method": "GET", "headers": []}, receive, send)
            return int(sent[0]["status"])

        busy = [asyncio.create_task(ask("/slow")) for _ in range(2)]
        await asyncio.sleep(0)
        statuses = [await ask(path) for path in ("/", "/healthz", "/readyz")]
        free.set()
        return [*statuses, *[await task for task in busy], await ask("/")]

    with ThreadPoolExecutor() as pool:  # this thread's loop may be a browser's
        statuses = pool.submit(asyncio.run, scenario()).result()
    assert statuses == [503, 200, 200, 200, 200, 200]
