"""The state directory: where one supervisor, and only one, keeps its control socket and its Redis."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import structlog

from lowkiq.environment import OPEN_TO_OTHERS, too_long_for_a_socket
from lowkiq.process.place import CONTROL_SOCKET
from lowkiq_supervisor.errors import BootError

log = structlog.stdlib.get_logger("supervisor")


class Lock:
    """A locked file that says which process holds it. The lock lasts as long as any process has the file open."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.descriptor: int | None = None

    def take(self) -> str | None:
        """Take it, without waiting. Returns None, or the process that has it."""
        if self.descriptor is None:
            self.descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return os.pread(self.descriptor, 20, 0).decode(errors="replace").strip() or "unknown"
        os.ftruncate(self.descriptor, 0)
        os.pwrite(self.descriptor, f"{os.getpid()}\n".encode(), 0)
        return None

    def close(self) -> None:
        """Give this process's hold on it back; other processes keep theirs."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


class StateDir:
    """The directory, and this process's hold on it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        #: Where the supervisor listens for commands.
        self.control_socket = Path(f"{path}{CONTROL_SOCKET}")
        self._lock = Lock(path / "supervisor.lock")
        #: Gives this process's hold back; in a forked child, without touching the supervisor's.
        self.close = self._lock.close

    def claim(self) -> None:
        """Make the directory and lock it. BootError: another supervisor has it, or it can't be used."""
        refuse_a_long_path(self.control_socket)
        with usable():
            make_private(self.path)
            holder = self._lock.take()
        if self.path.stat().st_mode & OPEN_TO_OTHERS:
            log.warning("state_directory_open_to_others", directory=str(self.path), hint="chmod go-w it")
        if holder is not None:
            raise BootError(
                f"another supervisor (process {holder}) runs in {self.path}: stop it by `lowkiq-supervisor stop`, or "
                "give this one its own --state-dir"
            )


@contextlib.contextmanager
def usable() -> Iterator[None]:
    """Turns what the system refuses into a BootError."""
    try:
        yield
    except OSError as error:
        raise BootError(f"can't use the state directory: {error}; set LOWKIQ_STATE_DIR to another one") from error


def make_private(path: Path) -> None:
    """Make the directory, if it isn't there, for its owner only."""
    if not path.exists():
        path.mkdir(parents=True, mode=0o700)
        # Queued jobs are nobody's source code.
        (path / ".gitignore").write_text("*\n")


def refuse_a_long_path(path: Path) -> None:
    """Raises a BootError if a unix socket can't have this path."""
    if too_long := too_long_for_a_socket(path):
        raise BootError(f"{too_long}: set LOWKIQ_STATE_DIR to a shorter path, such as /var/tmp/lowkiq")
