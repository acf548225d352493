"""A private Redis server, and a node in a process of its own, for as long as a measurement takes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

from lowkiq_supervisor.embedded_redis import find_server

#: Seconds after which a measurement has failed.
LIMIT = 120.0


@contextmanager
def server() -> Iterator[str]:
    """The URL of a server that keeps nothing on disk."""
    with tempfile.TemporaryDirectory(prefix="lowkiq-bench-") as directory:
        socket = Path(directory) / "redis.sock"
        command = [str(find_server()), "--port", "0", "--unixsocket", str(socket), "--save", "", "--dir", directory]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            client = redis.Redis(unix_socket_path=str(socket))
            wait_until(lambda: _answers(client))
            yield f"unix://{socket}"
        finally:
            process.terminate()
            process.wait()


@contextmanager
def node(url: str, app: str, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """`lowkiq -r app`, ended with TERM."""
    environment = os.environ | {"LOWKIQ_REDIS_URL": url, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", "from lowkiq.cli import main; main()", "-r", app, *options]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def wait_until(condition: Callable[[], object], every: float = 0.01) -> None:
    """Polls until the condition holds."""
    deadline = time.monotonic() + LIMIT
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {LIMIT:.0f} s")
        time.sleep(every)


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False
