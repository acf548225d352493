"""OutboxStore: what a relay needs of a table, in whatever library it is written; and the locks that relays take."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

from lowkiq.outbox.rows import Row


def advisory_key(*words: str) -> int:
    """The number of an advisory lock, after the name of what it locks: 64 bits with a sign, as PostgreSQL has them."""
    digest = hashlib.sha256("\0".join(("lowkiq", *words)).encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def _opened(path: str, flags: int) -> int:
    # Another user may have put a symlink there, or a FIFO, which waits for its other end.
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)


@contextmanager
def file_lock(path: Path) -> Iterator[bool]:
    """
    Holds the lock of a file, which is made if need be; its process's death frees it. False, at once, while another
    process or thread holds it. SQLite's own lock won't do: whoever waits for Redis with it keeps the site from writing.
    """
    with open(path, "ab", opener=_opened) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


class Turn(Protocol):
    """A relay's turn with the table: no other relay sends anything during it."""

    def oldest(self, limit: int, now: float) -> Sequence[Row]:
        """
        Rows that are committed, in the order of their ids; also one with a lower id than others that were read before.
        Left out is a row whose `retry_at` is later than `now`, a Unix time, and all later ones of its queue and job_id.
        It must see all that earlier turns have changed: on PostgreSQL by READ COMMITTED.
        """

    def delete(self, ids: Sequence[int]) -> None:
        """Deletes rows that Redis has taken."""

    def refuse(self, ids: Sequence[int], error: str, retry_at: float) -> None:
        """Keeps rows with an error, counts their `tries`, and leaves them out until then, a Unix time."""


class OutboxStore(Protocol):
    """A table of jobs to be pushed."""

    def turn(self) -> AbstractContextManager[Turn | None]:
        """
        Takes the table's lock for one batch, and gives it up, with what was changed committed, at the end, or at the
        death of the process. None, without waiting, while another relay has it.
        """
