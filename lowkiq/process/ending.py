"""
The end of a process that has run code of the user's: what that has registered for the end runs, within its time.

Standard library only: for nodes, helpers, and what the supervisor starts.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
import time
import weakref
from types import FrameType, ModuleType

from lowkiq.process.signals import ONE_PRESS

#: Seconds that the end of a process has at least: to flush what is in memory.
LEAST = 0.5
#: Seconds for the end of a process that was given no other time.
USUAL = 2.0


def begin_anew() -> None:
    """In a forked process: what was made before the fork, temporary directories say, is its maker's to remove."""
    for made in list(getattr(weakref.finalize, "_registry", ())):
        made.atexit = False


def leave_within(seconds: float, code: int) -> None:
    """Has the process end with this code in so many seconds, whatever holds it up."""

    def leave() -> None:
        time.sleep(seconds)
        os._exit(code)

    threading.Thread(target=leave, name="lowkiq-deadline", daemon=True).start()


def finish(code: int, seconds: float = USUAL) -> int:
    """
    Does what the interpreter does before it ends: waits for threads that are no daemons, calls what is registered with
    `atexit` (`logging.shutdown`, what `multiprocessing` cleans up), and ends its resource tracker, which removes shared
    memory that nobody has. For the main thread, which does nothing after that but end the process with the code. Where
    it takes longer than so many seconds, the process ends with that code by itself, and so it does on QUIT, or another
    INT than that which may have begun it.
    """
    began_at = time.monotonic()

    def leave(number: int, _: FrameType | None) -> None:
        if number == signal.SIGQUIT or time.monotonic() - began_at > ONE_PRESS:
            os._exit(code)

    leave_within(max(seconds, LEAST), code)
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, leave)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    run_exit_functions(code, seconds)
    return code


def run_exit_functions(code: int, seconds: float) -> None:
    """
    The same, for the main thread of a process that somebody else ends after so many seconds. If its threads take half
    of them, it is done without them, and the process ends with that code.
    """
    turn = threading.Lock()

    def go_on_without_them() -> None:
        time.sleep(max(seconds, LEAST) / 2)
        if turn.acquire(blocking=False):
            _clean_up()
            os._exit(code)

    threading.Thread(target=go_on_without_them, name="lowkiq-without-threads", daemon=True).start()
    _call(threading, "_shutdown")
    turn.acquire()
    _clean_up()


def _clean_up() -> None:
    _call(atexit, "_run_exitfuncs")
    with contextlib.suppress(BaseException):
        _stop_resource_tracker()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def _call(module: ModuleType, name: str) -> None:
    """As what `multiprocessing` calls in its children: there is no public way."""
    with contextlib.suppress(BaseException):
        getattr(module, name)()


def _stop_resource_tracker() -> None:
    """
    It removes what is left once its pipe is closed, and is not killed with this process's group before it could. Not
    waited for for long: what a job has forked holds the pipe's other end.
    """
    if module := sys.modules.get("multiprocessing.resource_tracker"):
        stopping = threading.Thread(target=module._resource_tracker._stop, daemon=True)
        stopping.start()
        stopping.join(LEAST)
