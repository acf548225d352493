"""EndedSessions: sessions that somebody has signed out of, though their cookies are still signed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from typing import Final

from redis.exceptions import RedisError
from starlette.concurrency import run_in_threadpool

from lowkiq import clock
from lowkiq.log import get_logger

logger = get_logger()

#: Sessions that are remembered here: an ended one is known until its cookie's own end.
MOST: Final = 1_000
#: Seconds that a request waits for what others have ended: while Redis hangs, its page must still say so in time.
PATIENCE: Final = 0.4
#: Seconds after which what other processes have ended is asked for again.
NEW_ENOUGH: Final = 1.0


class EndedSessions:
    """Remembers them here, and by way of Redis in all processes; while Redis is away here alone."""

    def __init__(self) -> None:
        self._here: dict[str, None] = {}
        self._everywhere: frozenset[str] = frozenset()
        self._read_at = float("-inf")

    def has(self, nonce: str) -> bool:
        """True for one that is over."""
        return nonce in self._here or nonce in self._everywhere

    async def refresh(self, read: Callable[[], Iterable[str]]) -> None:
        """Asks for those that other processes have ended, at most once a second."""
        now = clock.monotonic()
        if now - self._read_at < NEW_ENOUGH:
            return
        self._read_at = now
        # Left alone when it takes longer, and then known to the requests that follow.
        await asyncio.wait({asyncio.ensure_future(self._read(read))}, timeout=PATIENCE)

    async def _read(self, read: Callable[[], Iterable[str]]) -> None:
        with contextlib.suppress(RedisError):  # what was known stays known
            self._everywhere = frozenset(await run_in_threadpool(read))

    async def end(self, nonce: str, write: Callable[[str], object]) -> None:
        """Ends one, and tells the others."""
        self._here[nonce] = None
        for oldest in list(self._here)[:-MOST]:
            del self._here[oldest]
        try:
            await run_in_threadpool(write, nonce)
        except RedisError as error:
            logger.warning("session_ended_here_only", error=type(error).__name__)
