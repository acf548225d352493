"""
Threads that a job starts, and what it has threads of a pool do: their pushes are held as those of the job are, where
its worker has pushes="on_success". Context variables do not reach new threads, nor those of a pool; what holds pushes
does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import Any, TypeVar

from lowkiq.worker import held_pushes

T = TypeVar("T")

_start, _submit = threading.Thread.start, ThreadPoolExecutor.submit


@cache
def reach_threads() -> None:
    """From here on, in this process. Nothing is another for who holds no pushes."""
    threading.Thread.start = _start_held  # type: ignore[method-assign]
    ThreadPoolExecutor.submit = _submit_held  # type: ignore[assignment, method-assign]


def _start_held(self: threading.Thread) -> None:
    if held_pushes.get() is not None:
        self.run = _held(self.run)  # type: ignore[method-assign]
    _start(self)


def _submit_held(self: ThreadPoolExecutor, fn: Callable[..., T], /, *args: Any, **options: Any) -> Future[T]:
    if held_pushes.get() is None:
        return _submit(self, fn, *args, **options)
    fn = _held(fn)
    token = held_pushes.set(None)  # a thread that the pool starts for this is for others, too
    try:
        return _submit(self, fn, *args, **options)
    finally:
        held_pushes.reset(token)


def _held(function: Callable[..., T]) -> Callable[..., T]:
    hold = held_pushes.get()

    def run(*args: Any, **options: Any) -> T:
        token = held_pushes.set(hold)
        try:
            return function(*args, **options)
        finally:
            held_pushes.reset(token)

    return run
