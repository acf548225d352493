"""Whatever a batch waits for on the way to its first line, there it is asked once more whether it may start."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from lowkiq import Lowkiq, clock
from lowkiq.node.runtime import Runtime
from lowkiq.node.threads import leases_of
from lowkiq.node.worker_thread import WorkerThread
from tests.node.driven import acquire, pool_of, runtime_of
from tests.support import wait_until


async def on_the_loop(worker: Any, batch: Any, call: Callable[[], Any]) -> Any:
    return await call()


def on_a_thread(worker: Any, batch: Any, call: Callable[[], Any]) -> Any:
    return call()


class Bench:
    """A thread with a claim in hand that has to wait for the loop, or its threads, before it can begin."""

    def __init__(self, app: Lowkiq, *, is_async: bool) -> None:
        self.ran: list[str] = []

        async def later(id: str, payloads: list[Any]) -> None:
            self.ran.append(id)

        def now(id: str, payloads: list[Any]) -> None:
            self.ran.append(id)

        worker = app.worker(queue_name="q", shards_count=1)(later if is_async else now)
        app.push(worker, [{"id": "a"}])
        self.app = app
        self.runtime: Runtime = runtime_of(app)
        (self.lease,) = leases_of(self.runtime, worker)
        acquire(self.lease)
        self.thread = WorkerThread(0, pool_of(self.runtime, self.lease), self.runtime)
        assert self.thread._pick_and_exchange()
        self.over = threading.Event()

    def block_loop(self) -> None:
        self.runtime.loop.loop.call_soon_threadsafe(self.over.wait)

    def block_threads(self) -> None:
        executor = ThreadPoolExecutor(1)
        self.runtime.loop.loop.call_soon_threadsafe(self.runtime.loop.loop.set_default_executor, executor)
        executor.submit(self.over.wait)

    def released(self) -> list[str]:
        (claim,) = self.thread.in_hand
        settle = claim.settle_call(last=True)
        assert settle
        assert list(settle.outcome.stopped) == []
        return [*settle.outcome.released]


@pytest.fixture
def make_bench(make_app: Callable[..., Lowkiq]) -> Iterator[Callable[..., Bench]]:
    made: list[Bench] = []

    def make(*middlewares: Any, is_async: bool = False) -> Bench:
        made.append(Bench(make_app(server_middlewares=middlewares), is_async=is_async))
        return made[-1]

    yield make
    for bench in made:
        bench.over.set()
        bench.runtime.loop.close()


WAYS: dict[str, tuple[tuple[Any, ...], bool, Callable[[Bench], None]]] = {
    "an async middleware": ((on_the_loop,), False, Bench.block_loop),
    "a task of a suspect": ((), True, Bench.block_loop),
    "a sync middleware of a task": ((on_a_thread,), True, Bench.block_threads),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("is_lost", [False, True])
def test_a_batch_that_had_to_wait_starts_only_if_it_may_still(
    make_bench: Callable[..., Bench], way: tuple[tuple[Any, ...], bool, Callable[[Bench], None]], is_lost: bool
) -> None:
    middlewares, is_async, block = way
    bench = make_bench(*middlewares, is_async=is_async)
    block(bench)
    performing = threading.Thread(target=bench.thread._perform)
    performing.start()
    wait_until(lambda: bench.thread.in_hand[0].running)
    if is_lost:
        bench.lease.until = clock.monotonic() - 1
    bench.over.set()
    performing.join(60)
    assert bench.ran == ([] if is_lost else ["a"])
    if is_lost:
        assert bench.released() == ["a"]
