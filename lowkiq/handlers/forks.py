"""
Forks: a process that a job has forked off, and that comes back to our code, ends there.

It has a copy of all that its parent is at: the claims, the connections, the rest of the batch. Whoever calls code of
the user's does so by `run`; or notes `number` before, and ends with `leave` when it is another one afterwards.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from typing import Any, Final, NoReturn, TypeVar

from lowkiq.codec import error_text
from lowkiq.log import get_logger

logger = get_logger()

T = TypeVar("T")

#: Forks between this process and the first of ours that it comes from: in a child always another than in its parent.
#: A process's own, like its pid; but no other process ever gets the same again, and to look at it costs no call.
number = 0

#: Seconds for a line about it, which may wait in vain.
TELL_WITHIN: Final = 5.0
ADVICE: Final = "a process that a job forks must not return from perform: end it with os._exit, or use multiprocessing"


def _count() -> None:
    global number  # noqa: PLW0603 (the one fact that is a process's own)
    number += 1


os.register_at_fork(after_in_child=_count)


def leave(error: BaseException | None = None) -> NoReturn:
    """
    Ends a forked process without a way back into what it was forked from. It exits as a program would: with 0, the code
    of a SystemExit, or 1 for another error.
    """
    code = 0 if error is None else 1
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    # Another thread of the parent may have been in the middle of a line, so what it locks is locked here for ever.
    telling = threading.Thread(target=copy_context().run, args=(_tell, code, error), daemon=True)
    telling.start()
    telling.join(TELL_WITHIN)
    os._exit(code & 0xFF)


def _tell(code: int, error: BaseException | None) -> None:
    with suppress(Exception):
        told = {} if error is None else {"error": error_text(error)[:300]}
        logger.warning("forked_child_ended", pid=os.getpid(), exit_code=code, **told, advice=ADVICE)
    _flush()


def is_thrown_away(error: BaseException | None) -> bool:
    """True for what a coroutine gets that nobody will run any more, in whichever process that is noticed."""
    return isinstance(error, GeneratorExit) and asyncio._get_running_loop() is None


def check(before: int, error: BaseException | None = None) -> None:
    """Leaves if this process was forked since `number` was that."""
    if number != before and not is_thrown_away(error):
        leave(error)


def run(function: Callable[..., T], *args: Any, **options: Any) -> T:
    """Calls what may fork, and return twice: once it has, this is the process that it was."""
    before = number
    try:
        result = function(*args, **options)
    except BaseException as error:
        check(before, error)
        raise
    if number != before:
        leave()
    return result


def end(code: int) -> NoReturn:
    """Ends this process after what it has printed, and runs nothing more."""
    _flush()
    os._exit(code)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
