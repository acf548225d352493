"""The node's signals: handlers only append, and the main thread's loop acts."""

from __future__ import annotations

import contextlib
import select
import signal
import socket
from collections import deque
from collections.abc import Iterable
from types import FrameType


class Signals:
    """Waits for signals, and for `wake` from other threads. Made and used in the main thread."""

    def __init__(self, numbers: Iterable[signal.Signals]) -> None:
        self._arrived: deque[int] = deque()
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._former_fd = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        self._former = {number: signal.signal(number, self._append) for number in numbers}

    def _append(self, number: int, _: FrameType | None) -> None:
        self._arrived.append(number)

    def wake(self) -> None:
        """Ends a wait, from any thread."""
        with contextlib.suppress(BlockingIOError):  # it is full, so the waiter will wake
            self._writer.send(b"\0")

    def wait(self, timeout: float) -> list[int]:
        """The signals that have arrived, after at most `timeout` seconds."""
        select.select([self._reader], [], [], timeout)
        with contextlib.suppress(BlockingIOError):
            while self._reader.recv(4096):
                pass
        arrived = []
        while self._arrived:
            arrived.append(self._arrived.popleft())
        return arrived

    def close(self) -> None:
        """Puts back what was there before."""
        for number, handler in self._former.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._former_fd)
        self._reader.close()
        self._writer.close()
