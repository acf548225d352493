"""Bells: what an idle worker thread waits for."""

from __future__ import annotations

import threading
from typing import Protocol

from lowkiq.store.bell import Ask, Heard


class Bell(Protocol):
    """Of one thread."""

    def ring(self) -> None:
        """From any thread: ends a wait, or the next one."""

    def wait(self, seconds: float, ask: Ask) -> Heard:
        """Until it is rung, in one way or the other, or the time is over. May ask Redis to answer the ring."""

    def call_back(self) -> Heard:
        """Ends what was asked, if it has not ended: from here on it takes nothing more."""

    def close(self) -> None:
        """The thread ends."""


class LocalBell:
    """Rung within the node only: there the doorbell listens to pushes."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def ring(self) -> None:
        self._event.set()

    def wait(self, seconds: float, ask: Ask) -> Heard:  # noqa: ARG002 (nothing is asked)
        self._event.wait(seconds)
        self._event.clear()
        return Heard()

    def call_back(self) -> Heard:
        return Heard()

    def close(self) -> None:
        """Nothing is open."""
