"""
Fixtures of tests of the web view:

`make_web` makes the view of `app`, `browse` asks an ASGI application in this process, and `serve` puts one behind a
real socket. Starlette's own test client is not used: it warns that httpx is out of date, and follows no real server.
"""

from __future__ import annotations

import contextlib
import functools
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import uvicorn
from anyio.from_thread import start_blocking_portal
from starlette.applications import Starlette

from lowkiq import Lowkiq, Worker, clock
from lowkiq.queue import keys
from lowkiq.web import create_app
from lowkiq.web.backend import Backend
from lowkiq.web.security import access
from tests.queue.shard_driver import ShardDriver
from tests.support import wait_until

TOKEN = "a-token-of-the-tests"
# Each client would read the certificates of all authorities, of which no test asks for any.
httpx._transports.default.create_ssl_context = functools.cache(httpx.create_ssl_context)  # type: ignore[attr-defined]


def open_queue(app: Lowkiq, queue: str = "q", shards_count: int = 1) -> ShardDriver:
    """A queue as its first push makes it; the driver is of its shard 0."""
    app.redis().hset(keys.queues(app.settings.namespace), queue, shards_count)
    return ShardDriver(app, queue, 0, shards_count)


class Browser:
    """Asks an ASGI application, on one event loop; it keeps cookies and follows nothing."""

    def __init__(self, client: httpx.AsyncClient, call: Callable[..., Any]) -> None:
        self._client, self._call = client, call
        self.cookies = client.cookies

    def get(self, path: str, /, **headers: str) -> httpx.Response:
        return self.send("GET", path, headers)

    def post(self, path: str, form: Mapping[str, Any] | None = None, /, **headers: str) -> httpx.Response:
        return self.send("POST", path, headers, data=form or {})

    def send(self, method: str, path: str, headers: dict[str, str], **options: Any) -> httpx.Response:
        """Header names are given with underscores for dashes."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        response: httpx.Response = self._call(lambda: self._client.request(method, path, headers=named, **options))
        return response


@pytest.fixture(autouse=True)
def _no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TOKEN", "USER", "PASSWORD"):
        monkeypatch.delenv(f"LOWKIQ_WEB_{name}", raising=False)


@pytest.fixture(autouse=True)
def _quick_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each view derives a key, which is to take its time; here hundreds are made, and nobody guesses."""
    monkeypatch.setattr(access, "_KEY_ROUNDS", 1)


@pytest.fixture
def make_web(app: Lowkiq) -> Callable[..., Starlette]:
    """Makes the view of `app`, with options of create_app; without credentials it asks for none."""
    return lambda **options: create_app(app, **{"no_auth": not {"token", "user"} & options.keys()} | options)


@pytest.fixture
def browse() -> Iterator[Callable[..., Browser]]:
    """browse(asgi, address="127.0.0.1", url="http://localhost"): who asks, and by which name."""
    with contextlib.ExitStack() as stack:
        portal = stack.enter_context(start_blocking_portal())

        def open_browser(asgi: Any, address: str = "127.0.0.1", url: str = "http://localhost") -> Browser:
            transport = httpx.ASGITransport(app=asgi, client=(address, 50_000), raise_app_exceptions=False)
            client = httpx.AsyncClient(transport=transport, base_url=url)
            stack.callback(portal.call, client.aclose)
            return Browser(client, portal.call)

        yield open_browser


@pytest.fixture
def browser(make_web: Callable[..., Starlette], browse: Callable[..., Browser]) -> Browser:
    """A browser before a view of `app` that asks for nothing."""
    return browse(make_web())


@pytest.fixture
def driver(app: Lowkiq) -> ShardDriver:
    """The shard of a queue q."""
    return open_queue(app)


@pytest.fixture
def work(app: Lowkiq) -> type[Worker]:
    """A queue q of three shards."""
    return app.worker(queue_name="q", shards_count=3)(lambda _: None)


@pytest.fixture
def backend_of() -> Iterator[Callable[[Lowkiq], Backend]]:
    """backend_of(app): its backend, whose connections the test's end closes."""
    with contextlib.ExitStack() as stack:

        def make(app: Lowkiq) -> Backend:
            backend = Backend(app)
            stack.callback(backend.caller.client.close)
            return backend

        yield make


@pytest.fixture
def backend(app: Lowkiq, backend_of: Callable[[Lowkiq], Backend]) -> Backend:
    return backend_of(app)


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A monotonic clock of the test's own, which shows `time.now`."""
    time = SimpleNamespace(now=1_000.0)
    monkeypatch.setattr(clock, "monotonic", lambda: time.now)
    return time


@pytest.fixture
def serve() -> Iterator[Callable[[Any], str]]:
    """Serves an ASGI application on a port of this machine, and gives its URL without a slash at the end."""
    with contextlib.ExitStack() as stack:
        yield lambda asgi: stack.enter_context(
            served(
                uvicorn.Config(
                    asgi, http="h11", ws="none", lifespan="auto", log_config=None, timeout_graceful_shutdown=1
                )
            )
        )


@contextlib.contextmanager
def served(config: uvicorn.Config) -> Iterator[str]:
    """The URL of what uvicorn serves in a thread, without a slash at the end."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    wait_until(lambda: server.started)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(60)
        listener.close()
