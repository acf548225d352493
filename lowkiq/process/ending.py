"""
The end of a process that has run code of the user's: what that has registered for the end runs, within its time.

Standard library only: for nodes, helpers, and what the supervisor starts.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

#: Seconds that the end of a process has at least: to flush what is in memory.
LEAST = 0.5
#: Seconds for the end of a process that was given no other time.
USUAL = 2.0


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
    it takes longer than so many seconds, the process ends with that code by itself.
    """
    leave_within(max(seconds, LEAST), code)
    run_exit_functions()
    return code


def run_exit_functions() -> None:
    """The same, whatever time it takes."""
    threads: Any = threading
    for end in (threads._shutdown, atexit._run_exitfuncs, _stop_resource_tracker):
        _whatever_it_raises(end)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def _whatever_it_raises(end: Callable[[], object]) -> None:
    with contextlib.suppress(BaseException):
        end()


def _stop_resource_tracker() -> None:
    """It removes what is left once its pipe is closed, and is not killed with this process's group before it could."""
    if module := sys.modules.get("multiprocessing.resource_tracker"):
        module._resource_tracker._stop()
