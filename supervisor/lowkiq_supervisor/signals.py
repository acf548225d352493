"""
Signals of the supervisor: handlers only append to a deque, the loop acts.

Responsible for installing and restoring handlers, and for waking the loop. Not for what a signal means.
"""

from __future__ import annotations

import signal
import socket
from collections import deque
from types import FrameType, TracebackType
from typing import Any

#: What the arbiter acts on. CHLD is among them where a process can't be watched by a descriptor, and because a
#: parent may have left it ignored, which would make the kernel forget how children ended.
HANDLED = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGHUP,
    signal.SIGTSTP,
    signal.SIGTTIN,
    signal.SIGUSR2,
    signal.SIGCHLD,
)


def hold_back() -> None:
    """Keep signals pending until an inbox is entered: one that comes while the supervisor sets out isn't lost."""
    signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED)


def let_go() -> None:
    """Take signals the usual way again: for commands that don't supervise."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)


class SignalInbox:
    """The signals that have arrived, oldest first, and a descriptor that is readable when there are some."""

    def __init__(self) -> None:
        self._arrived: deque[signal.Signals] = deque()
        self._previous: dict[signal.Signals, Any] = {}
        self._previous_wakeup = -1
        self._receiver, self._sender = socket.socketpair()
        self._receiver.setblocking(False)
        self._sender.setblocking(False)

    def __enter__(self) -> SignalInbox:
        # The interpreter writes to the socket from C, even between select's last look and its sleep. A full buffer
        # is no problem: the loop is awake then.
        self._previous_wakeup = signal.set_wakeup_fd(self._sender.fileno(), warn_on_full_buffer=False)
        for signum in HANDLED:
            self._previous[signum] = signal.signal(signum, self._handle)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED)  # see hold_back
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        for signum, handler in self._previous.items():
            signal.signal(signum, handler)
        signal.set_wakeup_fd(self._previous_wakeup)
        self.close()

    def fileno(self) -> int:
        """The descriptor for the selector."""
        return self._receiver.fileno()

    def empty_socket(self) -> None:
        """Read what woke the loop; the deque says more."""
        while True:
            try:
                if not self._receiver.recv(4096):
                    return
            except BlockingIOError:
                return

    def take(self) -> list[signal.Signals]:
        """The signals since the last call."""
        taken = []
        while self._arrived:
            taken.append(self._arrived.popleft())
        return taken

    def close(self) -> None:
        """Close the sockets; in a forked child, without touching the parent's."""
        self._receiver.close()
        self._sender.close()

    def _handle(self, signum: int, _frame: FrameType | None) -> None:
        self._arrived.append(signal.Signals(signum))
