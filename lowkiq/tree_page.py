"""
TreePage: memory that all nodes of a supervisor share, for what only one of them may do at a time.

A tree is a supervisor with its nodes and all that these have started: what may die at one stroke, as a container does
that is out of memory. Standard library only.
"""

from __future__ import annotations

import fcntl
import math
import mmap
import os
import tempfile
import weakref
from typing import Final

from lowkiq import clock

#: Nodes of a tree that have a place; more of them share the last, and then nothing is ever alone.
MOST_NODES: Final = 1024
_HEAD: Final = 4
_SIZE: Final = (_HEAD + MOST_NODES) * 8
_CLOSED_UNTIL, _NEXT_AT = 0, 1
_WANTED = 2


class TreePage:
    """Made by the supervisor before any node; by a node that has none for itself. Each store is of eight bytes."""

    def __init__(self) -> None:
        self._file = _anonymous_file()
        weakref.finalize(self, os.close, self._file)
        os.ftruncate(self._file, _SIZE)
        self._memory = mmap.mmap(self._file, _SIZE)
        self._times = memoryview(self._memory)[: _HEAD * 8].cast("d")
        self._counts = memoryview(self._memory).cast("Q")
        self._owner = os.getpid()
        self._free = list(range(MOST_NODES - 1, 0, -1))

    # ── places ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def get_place(self) -> int:
        place = self._free.pop() if self._free else 0
        self.note_busy(place, 0)
        return place

    def free_place(self, place: int) -> None:
        """Notes, in the process that has made it, that a node is dead; in others nothing."""
        if place and os.getpid() == self._owner:
            self.note_busy(place, 0)
            self._free.append(place)

    def note_busy(self, place: int, batches: int) -> None:
        """Notes what a node performs just now."""
        self._counts[_HEAD + place] = batches if place else 1

    @property
    def is_busy(self) -> bool:
        """True while any node performs something."""
        return any(self._counts[_HEAD:])

    # ── closed: no node begins anything ─────────────────────────────────────────────────────────────────────────────

    @property
    def is_closed(self) -> bool:
        """True while somebody is to be alone."""
        return self._times[_CLOSED_UNTIL] > clock.monotonic()

    def close_until(self, until: float) -> None:
        """Has nobody begin anything before (by lowkiq.clock.monotonic, which they share), or until it is opened."""
        self._times[_CLOSED_UNTIL] = until

    def open(self, next_at: float) -> None:
        """Lets all begin again; nobody may close it before `next_at`."""
        self._times[_NEXT_AT] = next_at
        self._times[_CLOSED_UNTIL] = -math.inf

    @property
    def next_at(self) -> float:
        """When it may be closed again."""
        return self._times[_NEXT_AT]

    def want(self) -> None:
        """Notes that somebody waits until it is open."""
        self._counts[_WANTED] = 1

    @property
    def is_wanted(self) -> bool:
        """True if somebody waits until it is open."""
        return bool(self._counts[_WANTED])

    # ── the turn ────────────────────────────────────────────────────────────────────────────────────────────────────

    def take_turn(self) -> bool:
        """Takes what only one process has at a time, and has to its death; False: another one has it."""
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        self._counts[_WANTED] = 0
        return True

    def end_turn(self) -> None:
        """Gives it back."""
        fcntl.lockf(self._file, fcntl.LOCK_UN)


def _anonymous_file() -> int:
    """In memory where the platform can, so that no full disk matters."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("lowkiq-tree")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
