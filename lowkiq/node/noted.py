"""Noted: shards of this node that something is to be done for, as whoever learns of it says on any thread."""

from __future__ import annotations

import threading
from typing import Protocol

from lowkiq.queue.shard import Shard


class Owned(Protocol):
    """A lease, as far as chores need it."""

    @property
    def shard(self) -> Shard: ...
    @property
    def epoch(self) -> str | None: ...
    def holds(self, epoch: str | None) -> bool: ...


class Noted:
    """What one chore is to be done for."""

    def __init__(self) -> None:
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._noted: set[Owned] = set()
        #: It is done for some just now, or is to be tried again.
        self.is_busy = False

    @property
    def is_empty(self) -> bool:
        """True once it was done for all."""
        return not (self._noted or self.is_busy)

    def note(self, lease: Owned) -> None:
        """Has it be done for that shard."""
        with self._lock:
            self._noted.add(lease)
        self._wake.set()

    def take(self, timeout: float) -> set[Owned]:
        """Waits until there are some, at most so many seconds, and takes them out."""
        self._wake.wait(timeout)
        self._wake.clear()
        return self.take_now()

    def take_now(self) -> set[Owned]:
        with self._lock:
            taken, self._noted = self._noted, set()
            self.is_busy = self.is_busy or bool(taken)
        return taken

    def wake(self) -> None:
        """Ends a wait."""
        self._wake.set()
