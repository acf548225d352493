"""Bells: what an idle worker thread waits for."""

from __future__ import annotations

import threading
from typing import Protocol

from lowkiq.queue.bell import Heard


class Bell(Protocol):
    """Of one thread."""

    @property
    def is_idle(self) -> bool:
        """Whether jobs may be handed over at any moment."""

    def ring(self) -> None:
        """From any thread: ends a wait, or the next one."""

    def wait(self, seconds: float, *, is_idle: bool) -> Heard:
        """Until it is rung, in one way or the other, or the time is over. With `is_idle` jobs may be handed over."""

    def be_busy(self) -> Heard:
        """From here on nothing is handed over."""

    def close(self) -> None:
        """The thread ends."""


class LocalBell:
    """Rung within the node only: there the doorbell listens to pushes."""

    is_idle = False

    def __init__(self) -> None:
        self._event = threading.Event()

    def ring(self) -> None:
        self._event.set()

    def wait(self, seconds: float, *, is_idle: bool) -> Heard:  # noqa: ARG002 (nothing is handed over)
        self._event.wait(seconds)
        self._event.clear()
        return Heard()

    def be_busy(self) -> Heard:
        return Heard()

    def close(self) -> None:
        """Nothing is open."""
