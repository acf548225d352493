"""Pushes of threads that a job has started, or has a pool do something: with pushes="on_success" they are held, too."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context, copy_context
from multiprocessing.pool import ThreadPool
from typing import Any

import pytest

from lowkiq import Lowkiq, LowkiqError
from tests.node.driven import burst


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


def by_thread(push: Callable[[], Any], _: ThreadPoolExecutor) -> None:
    thread = threading.Thread(target=push)
    thread.start()
    thread.join()


def by_subclass(push: Callable[[], Any], _: ThreadPoolExecutor) -> None:
    class Own(threading.Thread):
        def run(self) -> None:
            push()

    thread = Own()
    thread.start()
    thread.join()


def by_pool(push: Callable[[], Any], pool: ThreadPoolExecutor) -> None:
    pool.submit(push).result()


def by_map(push: Callable[[], Any], pool: ThreadPoolExecutor) -> None:
    list(pool.map(lambda _: push(), [1]))


def by_thread_of_a_thread(push: Callable[[], Any], pool: ThreadPoolExecutor) -> None:
    by_thread(lambda: by_pool(push, pool), pool)


def by_executor_of_a_loop(push: Callable[[], Any], pool: ThreadPoolExecutor) -> None:
    async def main() -> None:
        await asyncio.get_running_loop().run_in_executor(pool, push)

    asyncio.run(main())


def by_thread_pool(push: Callable[[], Any], _: ThreadPoolExecutor) -> None:
    with ThreadPool(1) as pool:
        pool.apply(push)


def by_context(push: Callable[[], Any], pool: ThreadPoolExecutor) -> None:
    pool.submit(copy_context().run, push).result()


WAYS = [
    by_thread,
    by_subclass,
    by_pool,
    by_map,
    by_thread_of_a_thread,
    by_executor_of_a_loop,
    by_thread_pool,
    by_context,
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("fails", [False, True])
def test_what_a_thread_of_a_job_pushes_follows_only_if_that_is_done(
    app: Lowkiq, pool: ThreadPoolExecutor, way: Callable[..., None], fails: bool
) -> None:
    pool.submit(int).result()  # it has a thread already
    ran: list[str] = []

    @app.worker(queue_name="other", shards_count=1)
    def other(id: str, payloads: list[Any]) -> None:
        ran.append(id)

    @app.worker(queue_name="q", shards_count=1, pushes="on_success", max_retry_count=0)
    def q(id: str, payloads: list[Any]) -> None:
        way(lambda: other.perform_async([{"id": "thread"}]), pool)
        other.perform_async([{"id": "own"}])
        assert app.metrics()["other"].pushed == 0
        if fails:
            raise ValueError

    q.perform_async([{"id": 1}])
    burst(app)
    assert sorted(ran) == ([] if fails else ["own", "thread"])
    by_pool(lambda: other.perform_async([{"id": "later"}]), pool)  # the same threads, for nobody
    assert app.metrics()["other"].length == 1


def test_a_thread_that_outlives_its_job_is_told_that_its_pushes_are_of_none(
    app: Lowkiq, pool: ThreadPoolExecutor
) -> None:
    may_push, told = threading.Event(), list[BaseException | None]()

    @app.worker(queue_name="other", shards_count=1)
    def other(id: str, payloads: list[Any]) -> None: ...

    def push() -> None:
        may_push.wait(60)
        other.perform_async([{"id": "late"}])

    @app.worker(queue_name="q", shards_count=1, pushes="on_success")
    def q(id: str, payloads: list[Any]) -> None:
        if id == "first":
            told.append(None)
            q.late = pool.submit(push)  # type: ignore[attr-defined]
        else:
            may_push.set()
            told.append(q.late.exception(60))  # type: ignore[attr-defined]

    q.perform_async([{"id": "first"}])
    burst(app)
    q.perform_async([{"id": "second"}])
    burst(app)
    assert isinstance(told[1], LowkiqError)
    assert "once the job was over" in str(told[1])
    assert app.metrics()["other"].pushed == 0


def test_a_thread_that_is_started_as_one_of_no_job_pushes_at_once(app: Lowkiq) -> None:
    @app.worker(queue_name="other", shards_count=1)
    def other(id: str, payloads: list[Any]) -> None: ...

    @app.worker(queue_name="q", shards_count=1, pushes="on_success", max_retry_count=0)
    def q(id: str, payloads: list[Any]) -> None:
        thread = threading.Thread(target=lambda: other.perform_async([{"id": "at once"}]))
        Context().run(thread.start)
        thread.join()
        raise ValueError

    q.perform_async([{"id": 1}])
    burst(app)
    assert app.metrics()["other"].pushed == 1
