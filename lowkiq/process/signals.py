"""
Signals: handlers only append, and the main thread's loop acts.

Standard library only: for nodes and for the supervisor.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import socket
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from functools import cache
from time import monotonic
from types import FrameType, TracebackType
from typing import Any

from lowkiq.process.held_signals import FAULTS, hold_back

#: Signals that nothing need be done about: a process that has no handler for one goes on, stops or ends as it should.
_GOOD_AS_THEY_ARE = {
    *FAULTS, signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH,
    signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGTERM, signal.SIGINT, signal.SIGQUIT,
}  # fmt: skip

#: Seconds within which INTs are one: a key that is pressed once reaches a process by its terminal, and again by
#: whatever has started it.
ONE_PRESS = 0.5

_forks = threading.local()


def disarm(*, but: Iterable[signal.Signals] = ()) -> None:
    """
    Do nothing on every signal that would end this process without a drain, and has no meaning here.

    By a handler, since a signal that is ignored stays so in the programs that jobs start. What the application sets up
    later, or has already, stands.
    """
    for number in signal.valid_signals() - _GOOD_AS_THEY_ARE - set(but):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _nothing)


def _nothing(_number: int, _frame: FrameType | None) -> None:
    """Only that the default doesn't happen."""


def leave_on(codes: Mapping[signal.Signals, int]) -> None:
    """End at once on these signals, with these exit codes: while there is nothing yet to be ended gently."""
    for number, code in codes.items():
        signal.signal(number, lambda *_, code=code: os._exit(code))


@cache
def spare_forks() -> None:
    """
    Has processes that are forked from here on, by jobs say, begin without the handlers of this module: a signal to them
    means what it means to any process. (Programs that are executed lose handlers anyway.)
    """
    os.register_at_fork(before=_hold_back, after_in_parent=_let_go, after_in_child=_restore_defaults)


def _hold_back() -> None:
    """One that comes to a child before it has its defaults waits for them."""
    _forks.mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    hold_back()


def _let_go() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _forks.mask)


def _restore_defaults() -> None:
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if getattr(signal.getsignal(number), "__module__", None) == __name__:
            signal.signal(number, signal.SIG_DFL)
    _let_go()


class SignalInbox:
    """
    The signals that have arrived, oldest first, and a descriptor that is readable when there are some.

    Handlers are in place from `with` to its end. For the main thread; only `wake` is for others, too. An INT that comes
    within ONE_PRESS after another is no second one.

    Args:
        ends_process: nothing comes after `with` but the process's end: signals are held back from there on, so that a
            late one doesn't replace the exit code.
    """

    def __init__(self, numbers: Iterable[signal.Signals], *, ends_process: bool = False) -> None:
        self._numbers = tuple(numbers)
        self._ends_process = ends_process
        self._arrived: deque[int] = deque()
        self._interrupted_at = -math.inf
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
        if self._ends_process:
            hold_back()
        for number, handler in self._former.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._former_fd)
        self.close()

    def _append(self, number: int, _: FrameType | None) -> None:
        if number == signal.SIGINT:
            now = monotonic()
            if now - self._interrupted_at < ONE_PRESS:
                return
            self._interrupted_at = now
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
