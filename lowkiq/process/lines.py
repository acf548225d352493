"""
Lines to standard error, or to a file: whole or not at all, and never waited for.

A reader that is stuck must not stop a supervisor's loop, nor a node's drain. The descriptor may be shared with a
terminal or with other programs, so its flags are left alone: where it can be opened once more, that copy is told not to
wait; where it can't, it is asked for room before each write.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import select
import socket
import stat
import sys
import termios
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from lowkiq.process.own_files import identity, open_own

#: Takes what there is room for, and says how much that was; BlockingIOError: nothing.
Write = Callable[[bytes], int]
#: A way to write, and how to close it.
Way = tuple[Write, Callable[[], object]]

#: The stderr that lines go to; none: whatever is stderr then.
_kept: list[TextIO] = []


class Lines:
    """
    The lines that a process writes, from any of its threads.

    Args:
        path: the file; None: standard error. A file that was moved away, or deleted, is made again.
        tell_dropped: logs how many lines were dropped, when there is room again.
    """

    def __init__(self, path: Path | None, tell_dropped: Callable[[int], object]) -> None:
        self._path = path
        self._tell_dropped = tell_dropped
        self._lock = threading.RLock()
        self._open: tuple[int, int] | None = None
        self._way: Way = (len, lambda: None)
        self._rest = b""
        self._dropped = 0
        os.register_at_fork(after_in_child=self._forget_the_parent_s)
        if path is not None:
            self._find()

    def msg(self, line: str) -> None:
        """Write the line, or count it."""
        with self._lock:
            if self._dropped:
                dropped, self._dropped = self._dropped, 0
                self._tell_dropped(dropped)  # comes back to here
                if self._dropped:
                    self._dropped = dropped
            if self._dropped or not self._put(f"{line}\n".encode(errors="backslashreplace")):
                self._dropped += 1

    debug = info = warn = warning = error = exception = critical = fatal = log = msg

    def _forget_the_parent_s(self) -> None:
        """Another thread of the parent may have been in the middle of a line, which is its own to end."""
        self._lock = threading.RLock()
        self._rest, self._dropped = b"", 0

    def _put(self, line: bytes) -> bool:
        try:
            write = self._find()
            self._rest = _written(write, self._rest)
            if self._rest or not self._has_room(len(line)):
                return False
            rest = _written(write, line)
        except (OSError, ValueError):  # it is gone for good, as a closed terminal is: nobody is left to count for
            return True
        if len(rest) == len(line):
            return False
        self._rest = rest
        return True

    def _find(self) -> Write:
        """The way to write; another one whenever something else has taken the place of what was open."""
        descriptor, place = None, None
        if self._path is not None:
            with contextlib.suppress(OSError):
                place = self._path.lstat()
        else:
            stream = _stderr()
            try:
                descriptor = stream.fileno()
            except (OSError, ValueError, AttributeError):  # a stand-in, as tests have it, or nothing at all
                return _to_stream(stream) if stream else len
            place = os.fstat(descriptor)
        if place is None or identity(place) != self._open:
            self._open_anew(descriptor or 2)
        return self._way[0]

    def _open_anew(self, descriptor: int) -> None:
        try:
            new = _to_file(self._path) if self._path is not None else _to_descriptor(descriptor)
            place = self._path.lstat() if self._path is not None else os.fstat(descriptor)
        except OSError:
            if self._open is None:
                raise
            return  # what is open still takes lines
        _, close = self._way
        close()
        self._way, self._open = new, identity(place)

    def _has_room(self, size: int) -> bool:
        """
        False for a long line that a pipe would take in two parts, between which others could write.

        Each page of a pipe is half full at least, as short writes share them.
        """
        if size <= select.PIPE_BUF or self._path is not None or sys.platform != "linux":
            return True
        with contextlib.suppress(OSError, ValueError):  # no pipe
            descriptor, used = _stderr().fileno(), array.array("i", [0])
            room = fcntl.fcntl(descriptor, fcntl.F_GETPIPE_SZ)
            fcntl.ioctl(descriptor, termios.FIONREAD, used)
            return size + 2 * used[0] + select.PIPE_BUF <= room
        return True


def keep_streams() -> None:
    """
    For a process that ends with its jobs: to close stdout or stderr flushes it, and nothing else, and lines go to the
    stderr of now. A job that closes one would close it for all jobs after it, which then fail as they print; and one
    that puts another in its place, as `contextlib.redirect_stderr` does, would take the log of all threads along.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):  # there is none, or a stand-in that can't be told
            stream.close = stream.flush  # type: ignore[method-assign]
    _kept[:] = [sys.stderr]


def _stderr() -> TextIO:
    return _kept[0] if _kept else sys.stderr


def _written(write: Write, data: bytes) -> bytes:
    """Write it; returns what there was no room for."""
    with contextlib.suppress(BlockingIOError):
        while data and (taken := write(data)):
            data = data[taken:]
    return data


def _to_stream(stream: TextIO) -> Write:
    def write(data: bytes) -> int:
        stream.write(data.decode())
        return len(data)

    return write


def _to_file(path: Path) -> Way:
    descriptor = open_own(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    return lambda data: os.write(descriptor, data), lambda: os.close(descriptor)


def _to_descriptor(descriptor: int) -> Way:
    """A way to write that never waits."""
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISSOCK(mode):  # as journald gives it
        own = socket.socket(fileno=os.dup(descriptor))
        return lambda data: own.send(data, socket.MSG_DONTWAIT), own.close
    if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
        with contextlib.suppress(OSError):  # not Linux, or a pipe or terminal that another user has opened
            flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
            copy = os.open(f"/proc/self/fd/{descriptor}", flags)
            return lambda data: os.write(copy, data), lambda: os.close(copy)
    if stat.S_ISREG(mode):
        return lambda data: os.write(descriptor, data), lambda: None
    poller = select.poll()
    poller.register(descriptor, select.POLLOUT)
    return lambda data: os.write(descriptor, data[: select.PIPE_BUF]) if poller.poll(0) else 0, lambda: None
