"""Redis of the world: how it is started, killed and started again. Never more than one process of it at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.chaos.journal import now
from tests.chaos.plan import FAULTS, REPLICATED
from tests.support import RedisServer

#: Told from when to when a fault has lasted.
Note = Callable[[float, float], None]


class Servers(Protocol):
    """Kind of Redis, as chaos needs it."""

    #: Where a proxy sends what it passes on; None: clients find their servers by themselves, past any proxy.
    socket: Path | None
    #: Kinds of faults that it adds to, or takes from, the plan.
    faults: tuple[str, ...]
    #: Whether a failover may lose acknowledged writes.
    may_lose: bool
    #: Seconds between probes.
    probe_every: float

    @property
    def url(self) -> str:
        """For clients."""

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def break_(self, kind: str, target: float, seconds: float, note: Note) -> bool:
        """Begins a fault of Redis; False if there is nothing to break now. Tells `note` from when to when it lasted."""

    def mend(self) -> None:
        """Ends the fault."""

    def wait(self) -> None:
        """Waits until no fault of Redis goes on."""

    def flush(self, target: float) -> None: ...
    def answers(self) -> bool: ...


class Standalone:
    """One server, AOF always: what it has acknowledged must survive kill -9."""

    may_lose = False
    probe_every = 0.02
    faults = tuple(kind for kind in FAULTS if kind not in REPLICATED)

    def __init__(self, directory: Path) -> None:
        self._server = RedisServer(directory / "redis", "--appendonly", "yes", "--appendfsync", "always")
        self.url = self._server.url
        self.socket: Path | None = self._server.socket
        # Says soon that Redis is away.
        self._client = self._server.client(socket_timeout=0.3, retry=Retry(NoBackoff(), 0))

    def start(self) -> None:
        self._server.start(wait=False)

    def stop(self) -> None:
        self._server.stop()

    def break_(self, kind: str, target: float, seconds: float, note: Note) -> bool:
        if self._server.process is None:
            return False
        since = now()
        self._server.kill()
        note(since, since + seconds)
        return True

    def mend(self) -> None:
        if not self._server.is_running:
            self.start()

    def wait(self) -> None:
        """Its only fault is mended at once."""

    def flush(self, target: float) -> None:
        self._client.script_flush()

    def answers(self) -> bool:
        with contextlib.suppress(redis.RedisError):
            return bool(self._client.ping())
        return False
