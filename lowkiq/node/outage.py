"""Outage: logs that Redis is away or refuses: a line when it begins, one now and then, one when it is over."""

from __future__ import annotations

import threading
from typing import Final

import structlog
from redis.exceptions import RedisError

from lowkiq import clock
from lowkiq.transport.errors import advice

logger = structlog.get_logger("lowkiq")

#: Seconds after which the same trouble is reported again.
REMIND: Final = 30.0


class Outage:
    """Shared by the threads of a node: what all of them meet at once is reported once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._since = 0.0
        #: Threads that have met trouble and since then no success.
        self._threads: set[str] = set()
        #: What was told → when (monotonic).
        self._told: dict[str, float] = {}

    def met(self, error: RedisError | OSError, event: str = "redis_trouble") -> None:
        """The calling thread has met it."""
        what = advice(error) or type(error).__name__
        now, thread = clock.monotonic(), threading.current_thread().name
        with self._lock:
            if not self._threads:
                self._since = now
            self._threads.add(thread)
            if now - self._told.get(what, -REMIND) < REMIND:
                return
            self._told[what] = now
        logger.warning(event, thread=thread, error=f"{type(error).__name__}: {error}"[:300], advice=advice(error))

    def over(self) -> None:
        """The calling thread gets on again. Cheap for one that had no trouble."""
        thread = threading.current_thread().name
        if thread not in self._threads:
            return
        with self._lock:
            self._threads.discard(thread)
            if self._threads:
                return
            self._told.clear()
            seconds = clock.monotonic() - self._since
        logger.info("redis_back", seconds=round(seconds, 1))
