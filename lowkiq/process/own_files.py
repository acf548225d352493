"""Opening files of one's own: what another user has put in their place is refused, not written through."""

from __future__ import annotations

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
