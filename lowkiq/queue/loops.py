"""The awaited pushes of each event loop of an application."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable

from lowkiq.queue.awaited import AwaitedPushes


class LoopsOfPushes:
    """The awaited pushes of each event loop. Threads, each with a loop of its own, can share it."""

    def __init__(self, make: Callable[[], AwaitedPushes]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._of_loops: dict[asyncio.AbstractEventLoop, AwaitedPushes] = {}

    def current(self) -> AwaitedPushes:
        """Pushes of the running loop. The first ones of a loop let go of those whose loop has ended."""
        loop = asyncio.get_running_loop()
        return self._of_loops.get(loop) or self._add(loop)

    async def end(self) -> None:
        """Waits for those of the running loop, and closes the connections of all."""
        if known := self._of_loops.get(asyncio.get_running_loop()):
            await known.end()
        self.close()

    def close(self) -> None:
        """Closes the connections, each by its own loop."""
        with self._lock:
            for loop, pushes in self._of_loops.items():
                if loop.is_running() and self._process == os.getpid():
                    loop.call_soon_threadsafe(pushes.close)
                else:
                    pushes.close()

    def _add(self, loop: asyncio.AbstractEventLoop) -> AwaitedPushes:
        with self._lock:
            if self._process != os.getpid():  # forked: the loops, and what they hold, are the parent's
                self._of_loops, self._process = {}, os.getpid()
            for ended in [known for known in self._of_loops if known.is_closed()]:
                self._of_loops.pop(ended).close()
            made = self._of_loops[loop] = self._make()
            return made
