"""
What each batch begins with: context variables as `on_server_init` has left them, alike on threads, tasks and helpers.

A batch runs in a copy of that context, so what it sets is gone after it. Decimal's context is an object that would be
shared by all copies, so none has one: each batch gets its own from `decimal.DefaultContext`, as a new thread would.
"""

from __future__ import annotations

import decimal
import faulthandler
import inspect
import signal
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from typing import Any, Final

from lowkiq.handlers import forks
from lowkiq.handlers.loop_thread import LoopThread

#: Timers that a process has one of each; the first is also that of `signal.alarm`.
TIMERS: Final = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
#: What of `decimal.getcontext()` a batch begins with; its flags are those of what was calculated.
DECIMAL: Final = ("prec", "rounding", "Emin", "Emax", "capitals", "clamp", "traps")


def call_init(hook: Callable[[], Any] | None, loop: LoopThread, clean: Context) -> None:
    """Calls on_server_init, an async one on the loop. Fills `clean` with the variables that there are then."""
    here = copy_context()
    if hook:
        result = here.run(forks.run, hook)
        if inspect.iscoroutine(result):
            here = here.run(loop.call, _context_after(result))
    for variable, value in here.items():
        if variable.name != "decimal_context":
            clean.run(variable.set, value)
    kept = here.run(decimal.getcontext)
    for name in DECIMAL:
        setattr(decimal.DefaultContext, name, getattr(kept, name))


async def _context_after(coroutine: Coroutine[Any, Any, Any]) -> Context:
    await coroutine
    return copy_context()


def stopped_timers() -> list[int]:
    """The timers of this process that nobody uses."""
    return [timer for timer in TIMERS if not any(signal.getitimer(timer))]


def stop_timers(timers: list[int]) -> None:
    """Stops these, and faulthandler's, which a job may have left behind. For the main thread."""
    for timer in timers:
        signal.setitimer(timer, 0)
    faulthandler.cancel_dump_traceback_later()
