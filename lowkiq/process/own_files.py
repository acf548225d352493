"""Opening files of one's own: what another user has put in their place is refused, not written through."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path


def open_own(path: str | Path, flags: int, mode: int = 0o600) -> int:
    """
    Open a file, never through a symlink, and never one that is another user's. Closed when another program is run.

    Raises:
        OSError: it can't be had, or isn't what it should be.
    """
    # Without O_NONBLOCK a FIFO would wait for its other end.
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, mode)
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_nlink > 1:
        os.close(descriptor)
        raise OSError(errno.EPERM, f"not a plain file of user {os.geteuid()} (it belongs to {found.st_uid})", str(path))
    return descriptor


def make_own_directory(path: str | Path) -> None:
    """
    Make the directory, if it isn't there, and keep others out of it.

    Raises:
        OSError: something else is in its place, or it is another user's.
    """
    with contextlib.suppress(FileExistsError):
        Path(path).mkdir(mode=0o700)
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if (owner := os.fstat(descriptor).st_uid) != os.geteuid():
            raise OSError(errno.EPERM, f"not a directory of user {os.geteuid()} (it belongs to {owner})", str(path))
        os.fchmod(descriptor, 0o700)
    finally:
        os.close(descriptor)


def foreign_owner(path: Path) -> int | None:
    """
    The user, if it is another one, to whom a directory belongs, or a link to one: who could put there what is then
    read or written. Root is none: volumes belong to it, also where nobody else may use them.
    """
    owners = [found.st_uid for found in (path.lstat(), path.stat())]
    return next((owner for owner in owners if owner not in {os.geteuid(), 0}), None)


def identity(found: os.stat_result) -> tuple[int, int]:
    """Device and inode: they tell a file from another one that has taken its name."""
    return found.st_dev, found.st_ino
