"""Where the view listens, and how its server starts, tells of itself and stops."""

from __future__ import annotations

import re
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from lowkiq import Lowkiq, LowkiqError, SettingsError
from lowkiq.environment import Address
from lowkiq.web import server
from lowkiq.web.server import CannotListen, serve
from tests.harness import Supervised
from tests.support import wait_until

Run = Callable[[], Supervised]

SERVER = """
import sys
from lowkiq import Lowkiq, log
from lowkiq.environment import Address
from lowkiq.web.server import serve

log.configure()
sys.exit(serve(Lowkiq(), Address("127.0.0.1", 0), on_state=lambda state: print(state, file=sys.stderr, flush=True)))
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


@pytest.fixture
def run(app: Lowkiq, tmp_path: Path) -> Iterator[Run]:
    """Runs a server in a process of its own."""
    with ExitStack() as stack:
        environment = {"LOWKIQ_REDIS_URL": app.settings.redis_url, "LOWKIQ_NAMESPACE": app.settings.namespace}
        yield lambda: stack.enter_context(Supervised(tmp_path, ["-c", SERVER], environment))


def url_of(server: Supervised) -> str:
    return str(server.until_logged("web_ready")[0]["url"])


def states_of(server: Supervised) -> list[str]:
    return [line for line in server.log_path.read_text().splitlines() if not line.startswith("{")]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_0_and_it_tells_its_states(run: Run, number: signal.Signals) -> None:
    server = run()
    assert httpx.get(f"{url_of(server)}healthz").text == "ok\n"
    wait_until(lambda: len(states_of(server)) >= 3)  # ready, again and again
    server.end(number)
    *before, last = states_of(server)
    assert (set(before), last) == ({"ready"}, "draining")


def test_open_connections_do_not_hold_it(run: Run) -> None:
    server = run()
    with httpx.Client() as client:
        client.get(f"{url_of(server)}api/v1/stats")  # and the connection stays
        server.end()
    assert not [line for line in server.log() if line["level"] == "error"]


def test_a_body_waits_for_nobodys_acknowledgement() -> None:
    """A client that keeps its connection had to wait 40 ms for each answer's second part."""
    with server._listen(Address("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()):
        connection, _ = listener.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_it_says_nothing_of_who_asks(run: Run) -> None:
    server = run()
    answer = httpx.get(f"{url_of(server)}nodes?secret=1", headers={"Authorization": "Bearer hunter22"})
    assert "server" not in answer.headers
    assert "date" in answer.headers
    server.end()
    assert not re.search("hunter22|secret", server.log_path.read_text())


def test_a_proxys_headers_change_nothing(run: Run) -> None:
    """Not even from loopback, which uvicorn trusts unless told not to."""
    url = url_of(run())
    for header in ("X-Forwarded-For", "Forwarded", "X-Forwarded-Proto"):
        assert httpx.get(url, headers={header: "127.0.0.1"}).status_code == 403


def test_the_link_that_it_logs_once_signs_in(run: Run) -> None:
    server = run()
    url = url_of(server)
    (told,) = server.until_logged("web_link")
    assert told["url"].startswith(f"{url}sign-in?token=")
    with httpx.Client() as client:
        assert client.get(f"{url}nodes").status_code == 303
        assert client.get(told["url"]).headers["location"] == "/"
        assert client.get(f"{url}nodes").status_code == 200


def test_a_proxy_with_default_settings_opens_nothing(run: Run) -> None:
    """It sends our own address as the host, and HTTP/1.0 or 1.1 without a word of itself."""
    url = url_of(run())
    port = httpx.URL(url).port
    for version, status in (("1.0", b"403"), ("1.1", b"401")):
        with socket.create_connection(("127.0.0.1", port), 20) as connection:
            connection.sendall(f"GET /api/v1/stats HTTP/{version}\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
            assert connection.recv(4096).split()[1] == status


def test_endless_headers_are_refused(run: Run) -> None:
    url = url_of(run())
    assert httpx.get(f"{url}healthz?{'x' * 20_000}").status_code == 200
    try:
        status = httpx.get(f"{url}healthz", headers={"x": "x" * (4 << 20)}).status_code
    except httpx.TransportError:
        return  # refused before all of it was sent
    assert status == 400
