"""Redis of the world: how it is started, killed and started again. Never more than one process of it at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.chaos.journal import now
from tests.chaos.plan import FAULTS, REPLICATED
from tests.support import RedisServer

#: Told from when to when a fault has lasted.
Note = Callable[..., None]


class Standalone:
    """One server, AOF always: what it has acknowledged must survive kill -9."""

    #: True if a failover may lose acknowledged writes.
    may_lose = False
    #: Seconds between probes.
    probe_every = 0.02
    #: Kinds of faults of the plan that it can have.
    faults = tuple(kind for kind in FAULTS if kind not in REPLICATED)

    def __init__(self, directory: Path) -> None:
        self._server = RedisServer(directory / "redis", "--appendonly", "yes", "--appendfsync", "always")
        self.url = self._server.url
        #: Where a proxy sends what it passes on.
        self.socket = self._server.socket
        # Says soon that Redis is away.
        self._client = self._server.client(socket_timeout=0.3, retry=Retry(NoBackoff(), 0))

    def start(self) -> None:
        self._server.start(wait=False)

    def stop(self) -> None:
        self._server.stop()

    def break_(self, kind: str, target: float, seconds: float, note: Note) -> bool:
        """Begins a fault; False if there is nothing to break now. Tells `note` from when to when it lasted."""
        if self._server.process is None:
            return False
        since = now()
        self._server.kill()
        note(since, since + seconds)
        return True

    def mend(self) -> None:
        """Ends the fault."""
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
