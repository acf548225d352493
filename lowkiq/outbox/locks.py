"""Locks of an outbox: numbers of PostgreSQL's advisory locks, and a file's lock where the database is a file."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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
