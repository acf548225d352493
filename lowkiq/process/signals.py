"""
Signals: handlers only append, and the main thread's loop acts.

Standard library only: for nodes and for the supervisor.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import select
import signal
import socket
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache, partial
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
#: Whoever sends one of these wants the process to end.
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)
#: Seconds that a hook which a signal has ended has for its `finally` before another one does the same.
_UNWINDING = 0.5

_forks = threading.local()
_libc = ctypes.CDLL(None)


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


def outlast() -> None:
    """
    Do nothing on signals to end, whatever else was to be done: it is for this process's parent to say when it ends.
    They may have been sent to all processes of a service, of which the others drain.
    """
    for number in ENDING:
        signal.signal(number, _nothing)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Holds signals to end back: a process that is forked in the block gets them when it can outlast them."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


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


class Interrupted(BaseException):
    """A hook of the user's was ended by a signal, on which its process acts next."""


class SignalInbox:
    """
    The signals that have arrived, oldest first, and a descriptor that is readable when there are some.

    Handlers are in place from `with` to its end. For the main thread; only `wake` is for others, too. An INT that comes
    within ONE_PRESS after another is no second one.

    Args:
        ends_process: nothing comes after `with` but the process's end: signals are held back from there on, so that a
            late one doesn't replace the exit code. What was blocked before is nobody's who comes after, so it is taken.
        on_interrupt: called with each signal that is to end a hook, which may go on all the same.
    """

    def __init__(
        self,
        numbers: Iterable[signal.Signals],
        *,
        ends_process: bool = False,
        on_interrupt: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._numbers = tuple(numbers)
        self._ends_process = ends_process
        self._on_interrupt = on_interrupt
        self._arrived: deque[int] = deque()
        self._interrupted_at = -math.inf
        self._former: dict[signal.Signals, Any] = {}
        #: The signals that end the hook which runs.
        self._end_hook: Collection[signal.Signals] = ()
        self._raised_at = -_UNWINDING
        #: What the kernel calls for Python's handlers.
        self._in_c = 0
        self._blocked: set[int] = set()
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._poll = select.poll()
        self._poll.register(self._reader, select.POLLIN)

    def __enter__(self) -> SignalInbox:
        # The interpreter writes to the socket from C, even between select's last look and its sleep. A full buffer
        # is no problem: the loop is awake then.
        self._former_fd = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        for number in self._numbers:
            self._former[number] = signal.signal(number, self._arrive)
            self._in_c = _called_on(number)
        if not self._ends_process:
            self._blocked = set(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
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

    def _arrive(self, number: int, frame: FrameType | None) -> None:
        self._append(number, frame)
        if number in self._end_hook and monotonic() - self._raised_at > _UNWINDING:
            self._raised_at = monotonic()
            self._on_interrupt(number)
            raise Interrupted(f"by {signal.Signals(number).name}")

    def call(
        self,
        hook: Callable[[], object],
        seconds: float | None = None,
        end: Collection[signal.Signals] = ENDING,
    ) -> bool:
        """
        Calls a hook of the user's, which may take its time: a signal to end ends it, and so does the end of so many
        seconds. Returns whether one did.
        """
        try:
            self._end_hook = end
            try:
                with self._limited(seconds):
                    hook()
            finally:
                self._end_hook = ()
        except Interrupted:
            self._end_hook = ()
            return True
        return False

    @contextlib.contextmanager
    def _limited(self, seconds: float | None) -> Iterator[None]:
        """Sends this thread a TERM when the time is over, unless the hook has its own ideas of that."""
        if seconds is None:
            yield
            return
        here = threading.get_ident()

        def end() -> None:
            if signal.getsignal(signal.SIGTERM) == self._arrive:
                signal.pthread_kill(here, signal.SIGTERM)

        timer = threading.Timer(seconds, end)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()

    def take_back(self) -> dict[signal.Signals, str]:
        """
        Puts the handlers back in place, and takes signals that were blocked since `with`: code of the user's has its
        own ideas of TERM, with which nothing would drain. Returns, for each that was taken, whose it was.
        """
        taken: dict[signal.Signals, str] = {}
        for number in self._numbers:
            handler = signal.getsignal(number)
            if handler != self._arrive:
                taken[number] = _name_of(handler)
            elif _called_on(number) != self._in_c:
                taken[number] = "C code's (faulthandler.register is such)"
            else:
                continue
            signal.signal(number, self._arrive)
        ours = set(self._numbers) - self._blocked
        for number in ours & set(signal.pthread_sigmask(signal.SIG_UNBLOCK, ours)):
            taken[signal.Signals(number)] = "blocked by pthread_sigmask"
        signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        return taken

    def fileno(self) -> int:
        return self._reader.fileno()

    def wake(self) -> None:
        """Ends a wait, from any thread."""
        with contextlib.suppress(BlockingIOError):  # it is full, so the waiter will wake
            self._writer.send(b"\0")

    def wait(self, timeout: float) -> list[int]:
        """The signals that have arrived, after at most `timeout` seconds."""
        self._poll.poll(max(timeout, 0) * 1000)  # a process may have more descriptors than `select` knows
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


def _called_on(number: signal.Signals) -> int:
    """The address of what the kernel calls on this signal: Python's own, unless code in C has put another there."""
    action = (ctypes.c_void_p * 64)()  # larger than any struct sigaction, which begins with it
    _libc.sigaction(int(number), None, action)
    return action[0] or 0


def _name_of(handler: Any) -> str:
    """A handler in words, with the place of its code where it has one."""
    if handler is None or isinstance(handler, signal.Handlers):
        return "C code's" if handler is None else handler.name
    while isinstance(handler, partial):
        handler = handler.func
    name = f"{getattr(handler, '__module__', '?')}.{getattr(handler, '__qualname__', type(handler).__qualname__)}"
    code = getattr(handler, "__code__", None)
    return f"{name} ({code.co_filename}:{code.co_firstlineno})" if code else name
