"""
Signals: handlers only append, and the main thread's loop acts.

Standard library only: for nodes and for the supervisor.
"""

from __future__ import annotations

import contextlib
import select
import signal
import socket
from collections import deque
from collections.abc import Iterable
from types import FrameType, TracebackType
from typing import Any


class SignalInbox:
    """
    The signals that have arrived, oldest first, and a descriptor that is readable when there are some.

    Handlers are in place from `with` to its end. For the main thread; only `wake` is for others, too.
    """

    def __init__(self, numbers: Iterable[signal.Signals]) -> None:
        self._numbers = tuple(numbers)
        self._arrived: deque[int] = deque()
        self._former: dict[signal.Signals, Any] = {}
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)

    def __enter__(self) -> SignalInbox:
        # The interpreter writes to the socket from C, even between select's last look and its sleep. A full buffer
        # is no problem: the loop is awake then.
        self._former_fd = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        for number in self._numbers:
            self._former[number] = signal.signal(number, self._append)
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._former_fd)
        self.close()

    def _append(self, number: int, _: FrameType | None) -> None:
        self._arrived.append(number)

    def fileno(self) -> int:
        return self._reader.fileno()

    def wake(self) -> None:
        """Ends a wait, from any thread."""
        with contextlib.suppress(BlockingIOError):  # it is full, so the waiter will wake
            self._writer.send(b"\0")

    def wait(self, timeout: float) -> list[int]:
        """The signals that have arrived, after at most `timeout` seconds."""
        select.select([self._reader], [], [], timeout)
        return self.take()

    def take(self) -> list[int]:
        """The signals that have arrived since the last look."""
        with contextlib.suppress(BlockingIOError):
            while self._reader.recv(4096):
                pass
        return [self._arrived.popleft() for _ in range(len(self._arrived))]

    def close(self) -> None:
        """Closes the descriptors; in a forked child, without touching the parent's."""
        self._reader.close()
        self._writer.close()
