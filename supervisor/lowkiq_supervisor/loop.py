"""The loop: waits for descriptors, and calls what belongs to each that has become readable."""

from __future__ import annotations

import contextlib
import selectors
from collections.abc import Callable
from typing import Protocol


class _HasFileno(Protocol):
    def fileno(self) -> int: ...


class Loop:
    """A selector whose keys are callbacks."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self.close = self._selector.close

    def add(self, watched: int | _HasFileno, when_readable: Callable[[], None]) -> None:
        """Call this whenever the descriptor is readable."""
        self._selector.register(watched, selectors.EVENT_READ, when_readable)

    def drop(self, watched: int | _HasFileno) -> None:
        """Stop watching; one that isn't watched is left alone."""
        with contextlib.suppress(KeyError):
            self._selector.unregister(watched)

    def wait(self, seconds: float | None) -> None:
        """Wait until something is readable or the time is over, and act on it."""
        for key, _ in self._selector.select(seconds):
            # What was done for an earlier one may have dropped, and closed, a later one.
            if self._selector.get_map().get(key.fd) is key:
                key.data()
