"""The view under granian, whose server is none of Python's: events arrive, and who goes away is let go."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from lowkiq import Lowkiq
from tests.support import SOURCES, python_with, wait_until
from tests.web.conftest import TOKEN

pytestmark = pytest.mark.long

SITE = f"""
from lowkiq import Lowkiq
from lowkiq.web import create_app

web = create_app(Lowkiq(), token={TOKEN!r})
"""


@contextmanager
def granian(app: Lowkiq, directory: Path) -> Iterator[httpx.Client]:
    """A client of the view that a granian serves."""
    path = directory / "web.sock"
    (directory / "site_of_ours.py").write_text(SITE)
    environment = {"LOWKIQ_REDIS_URL": app.settings.redis_url, "LOWKIQ_NAMESPACE": app.settings.namespace}
    python = python_with("granian==2.8.9")
    process = subprocess.Popen(
        [*python, "-m", "granian", "--interface", "asgi", "--no-ws", "--uds", str(path), "site_of_ours:web"],
        env=os.environ | environment | {"PYTHONPATH": f"{SOURCES}:{directory}"}, start_new_session=True,
    )  # fmt: skip
    transport, headers = httpx.HTTPTransport(uds=str(path)), {"Authorization": f"Bearer {TOKEN}"}
    try:
        wait_until(lambda: listens(path), "its socket")
        with httpx.Client(transport=transport, base_url="http://localhost", headers=headers, timeout=60) as client:
            yield client
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def listens(path: Path) -> bool:
    with suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))
        return True
    return False


def next_event(lines: Iterator[str]) -> str:
    until = time.monotonic() + 60
    for line in lines:
        if line.startswith("event: "):
            return line
        assert time.monotonic() < until, "there are only signs of life"
    raise AssertionError("it has ended")


def test_the_first_listeners_of_a_server_hear_and_leave(app: Lowkiq, tmp_path: Path) -> None:
    orders = app.worker(queue_name="orders")(lambda _: None)
    orders.perform_async([{"id": "first"}])
    with granian(app, tmp_path) as client:
        for listener in range(3):
            with client.stream("GET", "/api/v1/events") as response:
                lines = response.iter_lines()
                assert next(lines) == ": listening"
                orders.perform_async([{"id": listener}])
                assert next_event(lines) == "event: pushed"
            wait_until(lambda: not app.redis().pubsub_channels(f"{app.settings.namespace}:*"), "its leave")
        assert client.get("/static/live.js").status_code == 200
        assert client.post("/api/v1/queues/orders/resume").status_code == 200
