"""Redis of the world: how it is started, killed and started again. Never more than one process of it at a time."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from lowkiq_supervisor.processes.embedded_redis import find_server
from tests.chaos.journal import now
from tests.chaos.plan import FAULTS, REPLICATED

#: Told from when to when a fault has lasted.
Note = Callable[[float, float], None]


class Servers(Protocol):
    """What chaos needs of a kind of Redis."""

    #: For clients.
    url: str
    #: Where a proxy sends what it passes on; None: clients find their servers by themselves, past any proxy.
    socket: Path | None
    #: Kinds of faults that it adds to, or takes from, the plan.
    faults: tuple[str, ...]
    #: Whether a failover may lose acknowledged writes.
    may_lose: bool
    #: Seconds between probes.
    probe_every: float

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def break_(self, kind: str, target: float, seconds: float, note: Note) -> bool:
        """Begins a fault of Redis; False if there is nothing to break now. Tells `note` from when to when it lasted."""

    def mend(self) -> None:
        """Ends the fault."""

    def wait(self) -> None:
        """Until no fault of Redis goes on."""

    def flush(self, target: float) -> None: ...
    def answers(self) -> bool: ...


class Standalone:
    """One server, AOF always: what it has acknowledged must survive kill -9."""

    may_lose = False
    probe_every = 0.02
    faults = tuple(kind for kind in FAULTS if kind not in REPLICATED)

    def __init__(self, directory: Path) -> None:
        self._directory = directory / "redis"
        self._directory.mkdir()
        self.socket: Path = self._directory / "redis.sock"
        self.url = f"unix://{self.socket}"
        self._process: subprocess.Popen[bytes] | None = None
        self._client = quick_client(self.url)

    def start(self) -> None:
        binary = os.environ.get("LOWKIQ_TEST_REDIS") or str(find_server())
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [binary, "--port", "0", "--unixsocket", str(self.socket), "--dir", str(self._directory),
                 "--save", "", "--appendonly", "yes", "--appendfsync", "always",
                 "--maxmemory-policy", "noeviction"],
                stdout=log, stderr=log,
            )  # fmt: skip

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self._process:
            self._process.send_signal(number)
            self._process.wait(20)
            self._process = None

    def break_(self, kind: str, target: float, seconds: float, note: Note) -> bool:
        if self._process is None:
            return False
        since = now()
        self.stop(signal.SIGKILL)
        note(since, since + seconds)
        return True

    def mend(self) -> None:
        if self._process is None or self._process.poll() is not None:
            self.start()

    def wait(self) -> None:
        """Its only fault is mended at once."""

    def flush(self, target: float) -> None:
        self._client.script_flush()

    def answers(self) -> bool:
        with contextlib.suppress(redis.RedisError):
            return bool(self._client.ping())
        return False


def quick_client(url: str) -> redis.Redis:
    """A client that says soon that Redis is away."""
    return redis.Redis.from_url(url, socket_timeout=0.3, retry=Retry(NoBackoff(), 0))


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
