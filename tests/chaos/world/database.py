"""
Database: what jobs write to, as docs/idempotent.md tells users: it stores the highest fencing token of an id and
refuses a write with a lower one. A file an id holds all its writes, in the one order in which they were accepted.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.chaos import journal


class Database:
    """Rows of ids: a lock, a token, and the history of the row."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def write(self, queue: str, id: str, kind: str, token: int, **details: Any) -> bool:
        """
        Records what a job of that id does. False if it is refused: a job with a higher token has been here. The stamp
        is taken under the row's lock, so stamps and records of an id have one order.
        """
        row = self._directory / f"{queue}.{id}"
        with _locked(row) as log:
            accepted = _raise_token(row.with_suffix(row.suffix + ".token"), token)
            os.write(log, journal.line(kind, e=token, a=int(accepted), **details))
        return accepted

    def first_time(self, name: str) -> bool:
        """True for the first who asks, for what is to happen once."""
        try:
            os.close(os.open(self._directory / f"{name}.once", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True


@contextlib.contextmanager
def _locked(row: Path) -> Iterator[int]:
    log = os.open(row.with_suffix(row.suffix + ".log"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        fcntl.flock(log, fcntl.LOCK_EX)  # the kernel gives it back when the process is killed
        yield log
    finally:
        os.close(log)


def _raise_token(path: Path, token: int) -> bool:
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        stored = int(os.pread(file, 32, 0) or b"0")
        if token < stored:
            return False
        if token > stored:
            os.pwrite(file, b"%032d" % token, 0)
        return True
    finally:
        os.close(file)
