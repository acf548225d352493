"""The state directory: where one supervisor, and only one, keeps its control socket and its Redis."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from lowkiq.environment import OPEN_TO_OTHERS, too_long_for_a_socket
from lowkiq.log import get_logger
from lowkiq.process.own_files import foreign_owner, identity, open_own
from lowkiq.process.place import CONTROL_SOCKET
from lowkiq_supervisor.errors import BootError

log = get_logger("supervisor")


class Lock:
    """A locked file that says which process holds it. The lock lasts as long as any process has the file open."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.descriptor: int | None = None

    def take(self) -> str | None:
        """Take it, without waiting. Returns None, or the process that has it."""
        if self.descriptor is None:
            self.descriptor = open_own(self._path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return os.pread(self.descriptor, 20, 0).decode(errors="replace").strip() or "unknown"
        os.ftruncate(self.descriptor, 0)
        os.pwrite(self.descriptor, f"{os.getpid()}\n".encode(), 0)
        return None

    def is_in_place(self) -> bool:
        """True while the file that is locked is the one that others find."""
        with contextlib.suppress(OSError):
            return self.descriptor is not None and identity(self._path.lstat()) == identity(os.fstat(self.descriptor))
        return False

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
        self._last_trouble = ""

    def claim(self) -> None:
        """Make the directory and lock it. BootError: another supervisor has it, or it can't be used."""
        refuse_a_long_path(self.control_socket)
        holder = self._take(self._lock)
        if self.path.stat().st_mode & OPEN_TO_OTHERS:
            log.warning("state_directory_open_to_others", directory=str(self.path), hint="chmod go-w it")
        if holder is not None:
            raise BootError(
                f"another supervisor (process {holder}) runs in {self.path}: stop it by `lowkiq-supervisor stop`, or "
                "give this one its own --state-dir"
            )

    def keep(self) -> bool:
        """Make it again, and lock it, if somebody has deleted it; False: it can't be had."""
        if self._lock.is_in_place():
            return True
        lock, trouble = Lock(self.path / "supervisor.lock"), ""
        try:
            if holder := self._take(lock):
                trouble = "state_directory_taken"
        except BootError as error:
            holder, trouble = str(error), "state_directory_lost"
        if trouble:
            lock.close()
            if trouble != self._last_trouble:
                log.error(trouble, directory=str(self.path), by=holder, hint="jobs go on, without a control socket")
        else:
            self.close()
            self._lock = lock
            log.warning("state_directory_made_again", directory=str(self.path), hint="somebody has deleted it")
        self._last_trouble = trouble
        return not trouble

    def close(self) -> None:
        """Give this process's hold back; in a forked child, without touching the supervisor's."""
        self._lock.close()

    def _take(self, lock: Lock) -> str | None:
        with usable():
            make_private(self.path)
            refuse_another_user_s(self.path)
            return lock.take()


@contextlib.contextmanager
def usable() -> Iterator[None]:
    """Turns what the system refuses into a BootError."""
    try:
        yield
    except OSError as error:
        raise BootError(
            f"can't use the state directory: {error}; set LOWKIQ_STATE_DIR to a directory that user {os.geteuid()} may "
            "write to, such as /tmp/lowkiq, or one in a volume"
        ) from error


def make_private(path: Path) -> None:
    """Make the directory, if it isn't there, for its owner only."""
    if not path.exists():
        path.mkdir(parents=True, mode=0o700)
        # Queued jobs are nobody's source code.
        descriptor = open_own(path / ".gitignore", os.O_WRONLY | os.O_CREAT)
        os.write(descriptor, b"*\n")
        os.close(descriptor)


def refuse_another_user_s(path: Path) -> None:
    """Raises a BootError for a directory, or a link to one, into which another user could put what is then written."""
    if (owner := foreign_owner(path)) is not None:
        raise BootError(
            f"the state directory {path} belongs to user {owner}, and this is user {os.geteuid()}: run the "
            "supervisor as that user, or set LOWKIQ_STATE_DIR to a directory of its own"
        )


def refuse_a_long_path(path: Path) -> None:
    """Raises a BootError if a unix socket can't have this path."""
    if too_long := too_long_for_a_socket(path):
        raise BootError(f"{too_long}: set LOWKIQ_STATE_DIR to a shorter path, such as /var/tmp/lowkiq")
