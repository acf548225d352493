"""
The state directory: where one supervisor, and only one, keeps its control socket and its Redis.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import structlog

from lowkiq.environment import CONTROL_SOCKET, OPEN_TO_OTHERS, too_long_for_a_socket
from lowkiq_supervisor.errors import BootError

log = structlog.stdlib.get_logger("supervisor")


class StateDir:
    """The directory, and this process's hold on it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: int | None = None

    @property
    def control_socket(self) -> Path:
        """Where the supervisor listens for commands."""
        return Path(f"{self.path}{CONTROL_SOCKET}")

    def claim(self) -> None:
        """
        Make the directory and lock it.

        Raises:
            BootError: another supervisor has it, or it can't be used.
        """
        refuse_a_long_path(self.control_socket)
        try:
            make_private(self.path)
            self._lock = os.open(self.path / "supervisor.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise BootError(f"can't use the state directory: {error}; set LOWKIQ_STATE_DIR to another one") from error
        if self.path.stat().st_mode & OPEN_TO_OTHERS:
            log.warning("others can write into the state directory: chmod go-w it", directory=str(self.path))
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._lock, 20, 0).decode(errors="replace").strip()
            raise BootError(
                f"another supervisor (process {holder or 'unknown'}) runs in {self.path}: stop it by "
                "`lowkiq-supervisor stop`, or give this one its own --state-dir"
            ) from None
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)

    def close(self) -> None:
        """Give this process's hold back; in a forked child, without touching the supervisor's."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def make_private(path: Path) -> None:
    """Make the directory, if it isn't there, for its owner only."""
    if not path.exists():
        path.mkdir(parents=True, mode=0o700)
        # Queued jobs are nobody's source code.
        (path / ".gitignore").write_text("*\n")


def refuse_a_long_path(path: Path) -> None:
    """
    Raises:
        BootError: a unix socket can't have this path.
    """
    if too_long := too_long_for_a_socket(path):
        raise BootError(f"{too_long}: set LOWKIQ_STATE_DIR to a shorter path, such as /var/tmp/lowkiq")
