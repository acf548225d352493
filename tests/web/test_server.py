"""Where the view listens, and how its server starts, tells of itself and stops."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import IO

import httpx
import pytest

from lowkiq import Lowkiq, LowkiqError, SettingsError
from lowkiq.environment import Address
from lowkiq.web.server import CannotListen, serve
from tests.support import ROOT, wait_until

SERVER = """
import sys
from lowkiq import Lowkiq, log
from lowkiq.environment import Address
from lowkiq.web.server import serve

log.configure()
states = lambda state: print(state, flush=True)
sys.exit(serve(Lowkiq(), Address(sys.argv[1], 0), on_state=states))
"""


def test_serve_refuses_an_open_address_before_it_listens(app: Lowkiq) -> None:
    with pytest.raises(SettingsError):
        serve(app, Address("0.0.0.0", 1))


def test_a_taken_port_is_told_in_one_line(app: Lowkiq) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CannotListen, match=f"127.0.0.1:{port} is taken") as refusal:
            serve(app, Address("127.0.0.1", port))
    assert isinstance(refusal.value, LowkiqError)
    assert "\n" not in str(refusal.value)


def test_an_address_of_another_machine_is_told_too(app: Lowkiq) -> None:
    with pytest.raises(CannotListen, match=r"can't listen at 192\.0\.2\.1:80"):
        serve(app, Address("192.0.2.1", 80), no_auth=True)


class Running:
    """A server in a process of its own."""

    def __init__(self, app: Lowkiq, host: str = "127.0.0.1") -> None:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("LOWKIQ_")}
        environment = inherited | {
            "LOWKIQ_REDIS_URL": app.settings.redis_url,
            "LOWKIQ_NAMESPACE": app.settings.namespace,
            "PYTHONPATH": str(ROOT),
        }
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER, host],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.states: list[str] = []
        self.log: list[str] = []
        self._readers = [
            threading.Thread(target=_collect, args=pair, daemon=True)
            for pair in ((self.process.stdout, self.states), (self.process.stderr, self.log))
        ]
        for reader in self._readers:
            reader.start()

    def url(self) -> str:
        def told() -> str | None:
            return next((str(line["url"]) for line in self.events() if line["event"] == "web_ready"), None)

        return str(wait_until(told))

    def events(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in list(self.log) if line.startswith("{")]

    def end(self) -> int:
        code = self.process.wait(30)
        for reader in self._readers:
            reader.join(30)
        return code


def _collect(stream: IO[str], lines: list[str]) -> None:
    with stream:
        lines.extend(line.rstrip("\n") for line in iter(stream.readline, ""))


@pytest.fixture
def run(app: Lowkiq) -> Iterator[Callable[..., Running]]:
    running: list[Running] = []

    def start(host: str = "127.0.0.1") -> Running:
        running.append(Running(app, host))
        return running[-1]

    yield start
    for server in running:
        if server.process.poll() is None:
            server.process.kill()
        server.end()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_0_and_it_tells_its_states(run: Callable[..., Running], number: int) -> None:
    server = run()
    assert httpx.get(f"{server.url()}healthz").text == "ok\n"
    wait_until(lambda: len(server.states) >= 3)  # ready, again and again
    server.process.send_signal(number)
    assert server.end() == 0
    assert server.states[-1] == "draining"
    assert set(server.states[:-1]) == {"ready"}


def test_open_connections_do_not_hold_it(run: Callable[..., Running]) -> None:
    server = run()
    with httpx.Client() as client:
        client.get(f"{server.url()}api/v1/stats")  # and the connection stays
        before = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert server.end() == 0
    assert time.monotonic() - before < 10  # three seconds by right, and as much as a slow machine needs
    assert not [line for line in server.events() if line["level"] == "error"]


def test_it_says_nothing_of_who_asks(run: Callable[..., Running]) -> None:
    server = run()
    answer = httpx.get(f"{server.url()}nodes?secret=1", headers={"Authorization": "Bearer hunter22"})
    assert "server" not in answer.headers
    assert "date" in answer.headers
    server.process.send_signal(signal.SIGTERM)
    server.end()
    assert not [line for line in server.log if "hunter22" in line or "secret" in line]


def test_a_proxys_headers_change_nothing(run: Callable[..., Running]) -> None:
    """Not even from loopback, which uvicorn trusts unless told not to."""
    url = run().url()
    assert httpx.get(url, headers={"X-Forwarded-For": "127.0.0.1"}).status_code == 403
    assert httpx.get(url, headers={"Forwarded": "for=127.0.0.1"}).status_code == 403
    assert httpx.get(url, headers={"X-Forwarded-Proto": "https"}).status_code in {200, 404}


def test_endless_headers_are_refused(run: Callable[..., Running]) -> None:
    url = run().url()
    assert httpx.get(f"{url}healthz?{'x' * 20_000}").status_code == 200
    try:
        status = httpx.get(f"{url}healthz", headers={"x": "x" * (4 << 20)}).status_code
    except httpx.TransportError:
        return  # refused before all of it was sent
    assert status == 400
