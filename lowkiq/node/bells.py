"""Bells: what an idle worker thread waits for."""

from __future__ import annotations

import threading
from typing import Protocol


class Bell(Protocol):
    """Of one thread."""

    def ring(self) -> None:
        """From any thread: ends a wait, or the next one."""

    def wait(self, seconds: float) -> list[bytes]:
        """
        Until it is rung or the time is over. Gives what pushes have said: each a shard's prefix, and the seconds until
        its job is due.
        """

    def close(self) -> None:
        """The thread ends."""


class LocalBell:
    """Rung within the node only: there the doorbell listens to pushes."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def ring(self) -> None:
        self._event.set()

    def wait(self, seconds: float) -> list[bytes]:
        self._event.wait(seconds)
        self._event.clear()
        return []

    def close(self) -> None:
        """Nothing is open."""
