"""`lowkiq-supervisor --web` as people run it: real nodes, the embedded Redis, and the real web view."""

from __future__ import annotations

import http.client
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psutil
import pytest

from tests.harness import Supervised, status
from tests.support import wait_until

APP = """
from lowkiq import Lowkiq

app = Lowkiq()

@app.worker()
def note(payloads_by_id):
    pass
"""


class Site:
    """A project with a supervisor and the address of its web view."""

    def __init__(self, directory: Path, port: int) -> None:
        self.directory, self.port = directory, port
        self.slot = f"web 127.0.0.1:{port}"

    def supervise(self, *arguments: str, **environment: str) -> Supervised:
        address = f"127.0.0.1:{self.port}"
        return Supervised.main(self.directory, "-r", "shop", "--web", address, *arguments, **environment)

    @contextmanager
    def running(self, *arguments: str, **environment: str) -> Iterator[Supervised]:
        """A supervisor whose nodes and view are ready."""
        with self.supervise(*arguments, **environment) as supervisor:
            supervisor.until_ready(2 if "--nodes" in arguments else 1)
            supervisor.until_logged("ready", slot=self.slot)
            yield supervisor

    @contextmanager
    def get(self, path: str, method: str = "GET", **headers: str) -> Iterator[http.client.HTTPResponse]:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            connection.request(method, path, headers=headers)
            with connection.getresponse() as response:
                yield response

    def answers(self, path: str, method: str = "GET", **headers: str) -> int:
        """The status of an answer; 0: there is none."""
        try:
            with self.get(path, method, **headers) as response:
                return response.status
        except OSError:
            return 0


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """Holds the site's port until it is closed."""
    with socket.create_server(("127.0.0.1", 0)) as holding:
        yield holding


@pytest.fixture
def site(tmp_path: Path, listener: socket.socket) -> Site:
    (tmp_path / "shop.py").write_text(APP)
    return Site(tmp_path, int(listener.getsockname()[1]))


def test_it_answers_beside_two_nodes_and_term_ends_all_of_it(site: Site, listener: socket.socket) -> None:
    listener.close()
    with site.running("--nodes", "2") as supervisor:
        assert site.answers("/healthz") == 200
        wait_until(lambda: site.answers("/readyz") == 200, "its Redis, which is the embedded one")
        view = psutil.Process(supervisor.pid(site.slot))
        wait_until(lambda: view.cmdline()[0] == f"lowkiq: {site.slot} [ready]", "its title")
        assert view.ppid() == supervisor.process.pid
        assert status(site.directory)["supervisor"]["state"] == "running"
        supervisor.end()
        reasons = {line["slot"]: line["reason"] for line in supervisor.events("ended")}
        assert reasons[site.slot] == "exit code 0"


def test_an_open_connection_does_not_hold_the_end_up(site: Site, listener: socket.socket) -> None:
    listener.close()
    with site.running() as supervisor:
        with site.get("/healthz") as response:
            assert response.status == 200
            supervisor.end()
        assert not supervisor.events("missed_deadline")


def test_killed_it_is_back_at_the_same_address(site: Site, listener: socket.socket) -> None:
    listener.close()
    with site.running() as supervisor:
        with site.get("/nodes"):
            os.kill(supervisor.pid(site.slot), signal.SIGKILL)
            wait_until(lambda: site.answers("/healthz") == 200, "an answer")
        assert len(supervisor.events("started", "node 0/1")) == 1


def test_without_credentials_it_shows_a_link_once_that_opens_it_also_after_its_restart(
    site: Site, listener: socket.socket
) -> None:
    listener.close()
    with site.running() as supervisor:
        (told,) = supervisor.until_logged("web_link")
        path, token = str(told["url"]).removeprefix(f"http://127.0.0.1:{site.port}"), told["url"].partition("token=")[2]
        known = {"Authorization": f"Bearer {token}"}
        assert site.answers("/api/v1/stats") == 401
        with site.get(path) as answer:
            assert (answer.status, answer.headers["Location"]) == (303, "/")
            cookie = answer.headers["Set-Cookie"].partition(";")[0]
        assert site.answers("/api/v1/stats", **known) == 200
        os.kill(supervisor.pid(site.slot), signal.SIGKILL)
        wait_until(lambda: site.answers("/healthz") == 200, "an answer")
        assert site.answers("/api/v1/stats", Cookie=cookie) == 200
        assert supervisor.log_path.read_text().count(token) == 1
        node = psutil.Process(supervisor.pid("node 0/1"))
        assert token not in node.environ().values()
        supervisor.end()


def bound(port: int) -> socket.socket | None:
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError:
        return None


def test_a_port_that_is_taken_later_is_said_in_one_line_and_tried_until_it_is_free(
    site: Site, listener: socket.socket
) -> None:
    listener.close()
    with site.running() as supervisor:
        os.kill(supervisor.pid(site.slot), signal.SIGKILL)
        with wait_until(lambda: bound(site.port)):  # its successor has to be imported first
            refused = supervisor.until_logged("cannot_serve_web")[0]
            assert refused["slot"] == site.slot
            assert f"127.0.0.1:{site.port} is taken" in refused["error"]
            assert "Traceback" not in supervisor.log_path.read_text()
            wait_until(lambda: status(site.directory)["supervisor"]["state"] == "degraded", "word of it")
        wait_until(lambda: site.answers("/healthz") == 200, "an answer")
        assert len(supervisor.events("started", "node 0/1")) == 1
        supervisor.end()


def test_flags_and_credentials_reach_it_and_preloading_goes_with_it(site: Site, listener: socket.socket) -> None:
    token = "a-token-of-the-environment"
    listener.close()
    with site.running("--preload", "--web-read-only", LOWKIQ_WEB_TOKEN=token) as supervisor:
        assert site.answers("/healthz") == 200
        assert site.answers("/api/v1/stats") == 401
        known = {"Authorization": f"Bearer {token}"}
        assert site.answers("/api/v1/stats", **known) == 200
        with site.get("/api/v1/queues/note/actions", "POST", **known) as refusal:
            assert (refusal.status, b"read-only" in refusal.read()) == (403, True)
        assert token not in supervisor.log_path.read_text()
        supervisor.end()
