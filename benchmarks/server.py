"""A private Redis server for as long as a measurement takes, and how to wait for something."""

from __future__ import annotations

import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import redis

from lowkiq_supervisor.processes.embedded_redis import find_server

#: Seconds after which a measurement has failed.
LIMIT = 120.0


@contextmanager
def server(*, tcp: bool = False) -> Iterator[str]:
    """The URL of a server that keeps nothing on disk; on a unix socket, unless TCP is asked for."""
    with tempfile.TemporaryDirectory(prefix="lowkiq-bench-") as directory:
        path = Path(directory) / "redis.sock"
        port = free_port() if tcp else 0
        command = [str(find_server()), "--port", str(port), "--bind", "127.0.0.1", "--unixsocket", str(path)]
        process = subprocess.Popen([*command, "--save", "", "--dir", directory], stdout=subprocess.DEVNULL)
        url = f"redis://127.0.0.1:{port}/0" if tcp else f"unix://{path}"
        try:
            with redis.Redis.from_url(url) as client:
                wait_until(lambda: _answers(client))
            yield url
        finally:
            process.terminate()
            process.wait()


def free_port() -> int:
    """A TCP port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def kill(process: subprocess.Popen[str]) -> None:
    """Ends a process with all its children, at once: what it leaves behind goes with its server."""
    with suppress(psutil.NoSuchProcess):
        for child in psutil.Process(process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                child.kill()
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe:
            with suppress(BrokenPipeError):
                pipe.close()


def wait_until(condition: Callable[[], object], every: float = 0.01, limit: float = LIMIT) -> None:
    """Polls until the condition holds."""
    deadline = time.monotonic() + limit
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {limit:.0f} s")
        time.sleep(every)


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False
