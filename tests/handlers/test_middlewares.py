"""Middlewares of either kind around performs of either kind: order, context, errors and cancellation."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import pytest

from lowkiq import Job, Lowkiq
from lowkiq.errors import PartialFailure
from lowkiq.handlers.loop_thread import LoopThread
from lowkiq.handlers.performer import Performer

KINDS = ["sync", "async"]
inside: ContextVar[str] = ContextVar("inside", default="")


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    loop = LoopThread()
    yield loop
    loop.close()


class Log(list[str]):
    def sync(self, name: str) -> Callable[..., Any]:
        def middleware(worker: Any, batch: list[Job], call: Callable[[], Any]) -> Any:
            self.append(f"{name} in {batch[0].id}")
            inside.set(name)
            try:
                return call()
            finally:
                self.append(f"{name} out")

        return middleware

    def asynchronous(self, name: str) -> Callable[..., Any]:
        async def middleware(worker: Any, batch: list[Job], call: Callable[[], Any]) -> Any:
            self.append(f"{name} in {batch[0].id}")
            inside.set(name)
            await asyncio.sleep(0)
            try:
                return await call()
            finally:
                self.append(f"{name} out")

        return middleware

    def of(self, kind: str, name: str) -> Callable[..., Any]:
        return self.sync(name) if kind == "sync" else self.asynchronous(name)


def performer(kind: str, act: Callable[[], Any], loop: LoopThread, fatal: Any = None, **settings: Any) -> Performer:
    app = Lowkiq(redis_url="redis://localhost:1", **settings)

    def plain(payloads_by_id: dict[str, list[Any]]) -> None:
        act()

    async def coroutine(payloads_by_id: dict[str, list[Any]]) -> None:
        await asyncio.sleep(0)
        act()

    worker = app.worker(queue_name="q")(plain if kind == "sync" else coroutine)
    return Performer(worker(), app.settings, fatal or (lambda error: None), loop)


def batch() -> list[Job]:
    return [Job("a", [1], (1.0,), 1.0)]


@pytest.mark.parametrize("outer", KINDS)
@pytest.mark.parametrize("inner", KINDS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_first_is_the_outermost(outer: str, inner: str, kind: str, loop: LoopThread) -> None:
    log = Log()
    middlewares = [log.of(outer, "outer"), log.of(inner, "inner")]
    performing = performer(kind, lambda: log.append("perform"), loop, server_middlewares=middlewares)
    assert performing.perform(batch()) is None
    assert log == ["outer in a", "inner in a", "perform", "inner out", "outer out"]


@pytest.mark.parametrize("kind", KINDS)
def test_one_that_has_an_around_async_is_that_around_an_async_perform(kind: str, loop: LoopThread) -> None:
    log = Log()

    class Both:
        __call__ = staticmethod(log.sync("sync"))
        around_async = staticmethod(log.asynchronous("async"))

    performing = performer(kind, lambda: log.append("perform"), loop, server_middlewares=[Both()])
    assert performing.perform(batch()) is None
    assert log == [f"{kind} in a", "perform", f"{kind} out"]


@pytest.mark.parametrize("around", KINDS)
@pytest.mark.parametrize("kind", KINDS)
def test_an_error_passes_through_and_fails_the_job(around: str, kind: str, loop: LoopThread) -> None:
    log = Log()

    def fail() -> None:
        raise PartialFailure({"a": "no"})

    performing = performer(kind, fail, loop, server_middlewares=[log.of(around, "m")])
    failures = performing.perform(batch())
    assert failures
    assert [row.error for row in failures.failed] == ["no"]
    assert log == ["m in a", "m out"]


@pytest.mark.parametrize("around", KINDS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_system_exit_reaches_the_node_and_ends_no_loop(around: str, kind: str, loop: LoopThread) -> None:
    fatal: list[BaseException] = []

    def leave() -> None:
        raise SystemExit(3)

    performing = performer(kind, leave, loop, fatal.append, server_middlewares=[Log().of(around, "m")])
    assert performing.perform(batch())
    assert [type(error) for error in fatal] == [SystemExit]

    async def one() -> int:
        return 1

    assert loop.call(one()) == 1


@pytest.mark.parametrize("around", KINDS)
def test_a_sync_perform_runs_in_the_thread_that_calls(around: str, loop: LoopThread) -> None:
    where: list[threading.Thread] = []
    performing = performer(
        "sync", lambda: where.append(threading.current_thread()), loop, server_middlewares=[Log().of(around, "m")]
    )
    performing.perform(batch())
    assert where == [threading.current_thread()]


@pytest.mark.parametrize("around", KINDS)
def test_an_async_perform_runs_on_the_loop_with_the_context_of_its_middlewares(around: str, loop: LoopThread) -> None:
    seen: list[Any] = []
    performing = performer(
        "async",
        lambda: seen.append((threading.current_thread() is loop.thread, inside.get())),
        loop,
        server_middlewares=[Log().of(around, "m")],
    )
    performing.perform(batch())
    assert seen == [(True, "m")]


def test_a_sync_middleware_that_blocks_does_not_block_the_loop(loop: LoopThread) -> None:
    gate = threading.Event()

    def slow(worker: Any, batch: list[Job], call: Callable[[], Any]) -> Any:
        gate.wait()
        return call()

    performing = performer("async", lambda: None, loop, server_middlewares=[slow])

    async def beside() -> str:
        task = asyncio.ensure_future(performing.perform_async(batch()))
        await asyncio.sleep(0.01)
        gate.set()
        await task
        return "done"

    assert loop.call(beside()) == "done"


@pytest.mark.parametrize("around", KINDS)
def test_to_cancel_it_cancels_the_perform_inside(around: str, loop: LoopThread) -> None:
    log = Log()
    app = Lowkiq(redis_url="redis://localhost:1", server_middlewares=[log.of(around, "m")])

    @app.worker(queue_name="q")
    async def forever(payloads_by_id: dict[str, list[Any]]) -> None:
        log.append("perform")
        try:
            await asyncio.sleep(300)
        except asyncio.CancelledError:
            log.append("cancelled")
            raise

    performing = Performer(forever(), app.settings, lambda error: None, loop)

    async def cancel() -> bool:
        task = asyncio.ensure_future(performing.perform_async(batch()))
        while "perform" not in log:
            await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    assert loop.call(cancel())
    assert log == ["m in a", "perform", "cancelled", "m out"]


def test_the_loop_is_late_while_something_blocks_it(loop: LoopThread) -> None:
    async def block() -> float:
        await asyncio.sleep(0)
        time.sleep(0.7)  # what it must not do, and what is told of
        return loop.lag

    assert loop.call(block()) > 0
