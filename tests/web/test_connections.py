"""Connections that never say what they want keep nobody from an answer."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import httpx
import pytest

from lowkiq import Lowkiq, clock
from lowkiq.web.connections import Limit
from tests.harness import Supervised
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
