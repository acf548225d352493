"""Breath: how long work on an event loop goes on without a pause for the others."""

from __future__ import annotations

import asyncio
from typing import Final

from lowkiq import clock

#: Seconds after which the loop has its turn: a fifth of what it may be blocked, for the collector may come by as well.
SLICE: Final = 0.001


class Breath:
    """Gives the loop its turn whenever a slice of time is over."""

    def __init__(self) -> None:
        self._until = clock.monotonic() + SLICE

    @property
    def is_over(self) -> bool:
        """True when the slice is."""
        return clock.monotonic() >= self._until

    async def take(self) -> None:
        """Goes on at once, or after the loop's turn."""
        if self.is_over:
            await asyncio.sleep(0)
            self._until = clock.monotonic() + SLICE
