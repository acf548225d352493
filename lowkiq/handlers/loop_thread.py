"""LoopThread: an event loop in a thread of its own, for coroutines of the user's."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import inspect
import os
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Any, Final, TypeVar

from lowkiq import clock
from lowkiq.handlers import forks
from lowkiq.log import get_logger

logger = get_logger()

T = TypeVar("T")

#: Threads of the loop's executor: for `asyncio.to_thread`, and sync middlewares around coroutines, one a batch.
EXECUTOR_THREADS: Final = 128
#: Seconds between the loop's ticks, by which it is known that nothing blocks it.
TICK: Final = 0.5


class Executor(ThreadPoolExecutor):
    """The threads of a loop: what they have forked does not go on with what they are to do next."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **options: Any) -> Future[T]:
        """As every pool's."""
        return super().submit(forks.run, fn, *args, **options)


class _Thread(threading.Thread):
    loop: asyncio.AbstractEventLoop


class LoopThread:
    """
    Started when it is first used. uvloop's loop where that is installed, else asyncio's own.

    Any thread may call its methods.
    """

    def __init__(self, name: str = "lowkiq-loop") -> None:
        self._name = name
        self._starting = threading.Lock()
        self._made: asyncio.AbstractEventLoop | None = None
        #: The thread, once there is one.
        self.thread: threading.Thread | None = None
        self._ticked_at = 0.0
        self._is_closed = False

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        made = self._made
        return made if made is not None else self._start()

    @property
    def lag(self) -> float:
        """Seconds by which the loop is late: something blocks it."""
        return max(clock.monotonic() - self._ticked_at - TICK, 0.0) if self._made is not None else 0.0

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine, in the caller's context, and waits for it. Not for the loop's own thread."""
        running = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return running.result()
        except BaseException:
            running.cancel()  # a signal has ended the wait, else it has ended by itself
            raise

    def finish(self, result: object) -> None:
        """Runs what a hook of the user's has returned to its end, if that is a coroutine."""
        if inspect.iscoroutine(result):
            self.call(result)

    def close(self, seconds: float = TICK) -> None:
        """
        Cancels tasks that are left, waits at most so many seconds for their `finally`, and for that of generators, and
        stops the loop, as soon as nothing blocks it.
        """
        if self._made is not None and self.thread:
            ending = asyncio.run_coroutine_threadsafe(_end_tasks(seconds), self._made)
            with contextlib.suppress(TimeoutError, CancelledError):
                if ended := ending.result(seconds):
                    logger.warning("tasks_cancelled", tasks=ended[:10], count=len(ended))
            self._is_closed = True
            self._made.call_soon_threadsafe(self._made.stop)
            self.thread.join(TICK)

    def _start(self) -> asyncio.AbstractEventLoop:
        with self._starting:
            if self._made is None:
                loop = _loop_factory()()
                loop.set_default_executor(Executor(EXECUTOR_THREADS, f"{self._name}-executor"))
                self._ticked_at = clock.monotonic()
                self.thread = thread = _Thread(target=self._run, args=(loop,), name=self._name, daemon=True)
                thread.loop = loop
                thread.start()
                self._made = loop
            return self._made

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        loop.call_soon(self._tick, loop)
        while not self._is_closed:
            with contextlib.suppress(SystemExit, KeyboardInterrupt):  # which a task hands on to whoever runs the loop
                loop.run_forever()
        loop.close()

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self._ticked_at = clock.monotonic()
        loop.call_later(TICK, self._tick, loop)


def _leave_fork() -> None:
    """In a process that a task has forked: has the loop end that, before anything else that it would run."""
    if isinstance(here := threading.current_thread(), _Thread):
        ready = getattr(here.loop, "_ready", None)
        if isinstance(ready, deque):  # of asyncio's own loop: what else is ready is the parent's
            ready.clear()
        here.loop.call_soon(forks.leave)


os.register_at_fork(after_in_child=_leave_fork)


async def _end_tasks(seconds: float) -> list[str]:
    """Cancels all tasks, and closes what generators are open. Returns whose they were."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        if not task.cancelling():  # else it may be in its `finally` already
            task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=seconds / 2)
    await asyncio.get_running_loop().shutdown_asyncgens()
    return sorted(getattr(task.get_coro(), "__qualname__", task.get_name()) for task in tasks)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    with contextlib.suppress(ImportError):
        factory: Callable[[], asyncio.AbstractEventLoop] = importlib.import_module("uvloop").new_event_loop
        return factory
    return asyncio.new_event_loop
