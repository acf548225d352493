"""A run's context is of that run: afterwards, and in a process that it has forked, it says so."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import pytest
from structlog.testing import capture_logs

from lowkiq import Lowkiq, LowkiqError, current
from lowkiq.errors import CheckpointFailed
from lowkiq.handlers.context import Context
from lowkiq.handlers.loop_thread import LoopThread
from lowkiq.handlers.performer import Performer
from lowkiq.job import Job
from tests.node.driven import burst


def deeds(app: Lowkiq, context: Context) -> list[Callable[[], Any]]:
    other = app.workers["other"]
    return [
        lambda: context.then(other, [{"id": "late"}]),
        lambda: context.checkpoint("late"),
        lambda: context.progress(0.5),
    ]


@pytest.fixture
def app(app: Lowkiq) -> Lowkiq:
    @app.worker(queue_name="other", shards_count=1)
    def other(id: str, payloads: list[Any]) -> None: ...

    return app


@pytest.mark.parametrize("keep", [current, copy_context])
@pytest.mark.parametrize("middlewares", [[], [lambda _worker, _batch, call: call()]], ids=["plain", "middleware"])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_kept_context_does_not_speak_for_the_next_job(
    make_app: Callable[..., Lowkiq], keep: Callable[[], Any], middlewares: list[Any], is_async: bool
) -> None:
    app = make_app(server_middlewares=middlewares)
    kept: list[Any] = []
    told: list[Any] = []

    @app.worker(queue_name="other", shards_count=1)
    def other(id: str, payloads: list[Any]) -> None: ...

    def act(id: str) -> None:
        if id == "first":
            kept.append(keep())
            sum(range(100_000))  # such a job is not a blank one
            return
        context = kept[0] if keep is current else kept[0].run(current)
        told.extend([[job.id for job in context.jobs], context.attempt, context.lease_lost, context.cancelled])
        with ThreadPoolExecutor(1) as pool:
            told.extend(pool.submit(deed).exception() for deed in deeds(app, context))
        assert [job.id for job in current().jobs] == ["second"]
        assert current().checkpoint_value is None

    if is_async:

        @app.worker(queue_name="q", shards_count=1, concurrency=1)
        async def tasks(id: str, payloads: list[Any]) -> None:
            act(id)

    else:

        @app.worker(queue_name="q", shards_count=1, concurrency=1)  # else both may run at a time, if the first is slow
        def threads(id: str, payloads: list[Any]) -> None:
            act(id)

    app.workers["q"].perform_async([{"id": "first"}, {"id": "second"}])
    burst(app)
    assert told[:4] == [["first"], 1, True, True]
    assert all(isinstance(error, LowkiqError) and "once the job was over" in str(error) for error in told[4:]), told
    assert isinstance(told[5], CheckpointFailed)
    assert app.metrics()["other"].pushed == 0


def test_a_blank_job_s_context_is_its_own(app: Lowkiq) -> None:
    kept: list[Context] = []

    @app.worker(queue_name="q", shards_count=1)
    def q(id: str, payloads: list[Any]) -> None:
        kept.append(current())

    q.perform_async([{"id": n} for n in range(50)])
    burst(app)
    assert sorted(context.jobs[0].id for context in kept) == sorted(map(str, range(50)))


@pytest.mark.parametrize("is_callback", [False, True])
def test_a_task_that_outlives_its_job_is_told_that_its_pushes_are_of_none(app: Lowkiq, is_callback: bool) -> None:
    may_push, told, tasks = threading.Event(), list[BaseException | None](), list[asyncio.Future[Any]]()

    async def push() -> None:
        while not may_push.is_set():
            await asyncio.sleep(0.001)
        await app.workers["other"].aperform_async([{"id": "left"}])

    def start(done: asyncio.Future[Any]) -> None:
        task = asyncio.ensure_future(push())
        task.add_done_callback(lambda _: done.set_exception(task.exception() or AssertionError("pushed")))

    @app.worker(queue_name="q", shards_count=1, pushes="on_success", concurrency=1)
    async def q(id: str, payloads: list[Any]) -> None:
        if id == "first":
            loop = asyncio.get_running_loop()
            tasks.append(loop.create_future() if is_callback else asyncio.create_task(push()))
            if is_callback:
                loop.call_later(0.01, start, tasks[0])
            return
        may_push.set()
        await asyncio.wait(tasks)
        told.append(tasks[0].exception())

    q.perform_async([{"id": "first"}, {"id": "second"}])
    burst(app)
    assert isinstance(told[0], LowkiqError)
    assert "once the job was over" in str(told[0])
    assert app.metrics()["other"].pushed == 0


def by_fork(told: Any, tell: Callable[[], None]) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            tell()
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


def by_multiprocessing(told: Any, tell: Callable[[], None]) -> None:
    child = multiprocessing.get_context("fork").Process(target=tell)
    child.start()
    child.join()


@pytest.mark.parametrize("way", [by_fork, by_multiprocessing])
@pytest.mark.parametrize("pushes", ["on_success", "now"])
@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_a_forked_process_does_not_speak_for_the_job(
    app: Lowkiq, way: Callable[..., None], pushes: Any, isolation: Any
) -> None:
    key = f"{app.settings.namespace}:told"
    other = app.workers["other"]

    @app.worker(queue_name="q", shards_count=1, pushes=pushes, isolation=isolation)
    def q(id: str, payloads: list[Any]) -> None:
        def tell() -> None:
            push = [lambda: other.perform_async([{"id": "child"}])]
            for deed in (*push, *deeds(app, current()), lambda: current().lease_lost):
                try:
                    deed()
                    app.redis().rpush(key, "done")
                except LowkiqError as error:
                    app.redis().rpush(key, str(error))

        way(None, tell)
        current().checkpoint("of the parent")

    q.perform_async([{"id": 1}])
    burst(app)
    told = [row.decode() for row in app.redis().lrange(key, 0, -1)]  # type: ignore[union-attr]
    assert [("forked" in row) for row in told] == [pushes == "on_success", True, True, True, True], told
    assert app.metrics()["other"].pushed == (0 if pushes == "on_success" else 1)
    assert app.metrics()["q"].processed == 1


class Never:
    """What is awaited for ever, without a loop."""

    def __await__(self) -> Generator[None, None, None]:
        yield


def test_a_batch_that_nobody_will_run_any_more_is_thrown_away_in_silence(app: Lowkiq) -> None:
    """Its loop is gone, with the node that had it; it may be noticed anywhere, also in a process forked since."""

    @app.worker(queue_name="q", shards_count=1)
    async def q(id: str, payloads: list[Any]) -> None:
        await Never()

    loop = LoopThread()
    performer = Performer(app.workers["q"](), app.settings, lambda error: pytest.fail(str(error)), loop)
    batch = performer.perform_async([Job("a", ["x"], (1.0,), 0.0)])
    batch.send(None)
    pid = os.fork()
    if pid == 0:
        with capture_logs() as logs:
            batch.close()
        os._exit(7 if not logs else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
