"""Middlewares around a perform: sync and async ones around either."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context, copy_context
from functools import partial
from queue import SimpleQueue
from typing import Any

from lowkiq.handlers import forks
from lowkiq.handlers.loop_thread import LoopThread
from lowkiq.handlers.start import Start
from lowkiq.hooks import Middleware, is_async

Call = Callable[[], Any]


def around(
    middlewares: Sequence[Middleware], worker: Any, batch: Any, call: Call, loop: LoopThread, start: Start
) -> Call:
    """
    A sync perform with middlewares around it, the first one outermost. Async ones run on the loop meanwhile. `start` is
    called right before whichever comes first.
    """
    call = partial(_first, start, call)
    for middleware in reversed(middlewares):
        if is_async(middleware):
            call = partial(_on_loop, middleware, worker, batch, call, loop, start)
        else:
            call = partial(_first, start, partial(middleware, worker, batch, call))
    return call


def around_async(
    middlewares: Sequence[Middleware], worker: Any, batch: Any, call: Call, start: Start
) -> Callable[[], Awaitable[Any]]:
    """
    Wraps an async perform likewise. Sync middlewares run in a thread of the loop's executor: they may block. One that
    has an `around_async` is replaced by it.
    """
    call = partial(_first, start, call)
    for middleware in reversed([getattr(each, "around_async", each) for each in middlewares]):
        inner = partial(middleware, worker, batch, call)
        call = (
            partial(_first, start, inner)
            if is_async(middleware)
            else partial(_in_thread, middleware, worker, batch, call, start)
        )
    return call


def _first(start: Start, call: Call) -> Any:
    """Calls what may be the first code of the user's."""
    start()
    return forks.run(call)


def _on_loop(middleware: Middleware, worker: Any, batch: Any, call: Call, loop: LoopThread, start: Start) -> Any:
    """Runs an async middleware on the loop; its `call` runs here, in the thread that waits for it."""
    asked: SimpleQueue[tuple[asyncio.Future[Any], Context] | None] = SimpleQueue()

    async def call_here() -> Any:
        answer = asyncio.get_running_loop().create_future()
        asked.put((answer, copy_context()))
        return await answer

    async def run() -> Any:
        start()
        before = forks.number
        try:
            result = await middleware(worker, batch, call_here)
        except BaseException as error:
            forks.check(before, error)
            raise
        forks.check(before)
        return result

    outcome = asyncio.run_coroutine_threadsafe(run(), loop.loop)
    outcome.add_done_callback(lambda _: asked.put(None))
    while (ask := asked.get()) is not None:
        answer, context = ask  # with what the middleware has set of context variables
        try:
            tell = partial(_resolve, answer, context.run(call), None)
        except BaseException as error:  # noqa: BLE001 (it is the middleware's to see, then the performer's)
            tell = partial(_resolve, answer, None, error)
        loop.loop.call_soon_threadsafe(tell)
    return outcome.result()


def _resolve(answer: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if answer.done():  # the middleware waits for it no longer
        return
    if error is None:
        answer.set_result(result)
    else:
        answer.set_exception(error)


async def _in_thread(middleware: Middleware, worker: Any, batch: Any, call: Call, start: Start) -> Any:
    """Runs a sync middleware in a thread; its `call` runs on the loop. To cancel it cancels that call."""
    loop = asyncio.get_running_loop()
    inner: list[asyncio.Task[Any]] = []

    async def run() -> Any:
        task = asyncio.ensure_future(call())
        inner.append(task)
        return await task

    def call_on_loop() -> Any:
        return asyncio.run_coroutine_threadsafe(run(), loop).result()

    begin = partial(_first, start, partial(middleware, worker, batch, call_on_loop))
    thread = loop.run_in_executor(None, copy_context().run, begin)
    try:
        return await asyncio.shield(thread)
    except asyncio.CancelledError:
        for task in inner:
            task.cancel()
        await asyncio.wait([thread])
        raise
