"""Each batch begins clean: with the context variables of on_server_init, on threads, in tasks and in helpers."""

from __future__ import annotations

import decimal
import faulthandler
import json
import signal
from collections.abc import Callable, Iterator
from contextvars import ContextVar, copy_context
from pathlib import Path
from typing import Any

import pytest

from lowkiq import Lowkiq, Worker
from lowkiq.handlers.clean import DECIMAL, TIMERS
from tests.node.driven import burst

tenant: ContextVar[str | None] = ContextVar("tenant", default=None)
before: ContextVar[str | None] = ContextVar("before", default=None)


@pytest.fixture(autouse=True)
def _decimals() -> Iterator[None]:
    kept = {name: getattr(decimal.DefaultContext, name) for name in DECIMAL}
    yield
    for name, value in kept.items():
        setattr(decimal.DefaultContext, name, value)


def seen() -> list[Any]:
    return [tenant.get(), before.get(), decimal.getcontext().prec, decimal.getcontext().flags[decimal.Inexact]]


def spoil() -> None:
    tenant.set("of another")
    before.set("of another")
    decimal.getcontext().prec = 3
    decimal.getcontext().flags[decimal.Inexact] = True


async def set_async() -> None:
    set_sync()


def set_sync() -> None:
    before.set("init")
    decimal.getcontext().prec = 17


def spoil_around(_worker: Any, batch: Any, call: Callable[[], Any]) -> Any:
    result = call()
    if batch[0].id == "first":
        spoil()
    return result


def add_worker(app: Lowkiq, kind: str, fails: bool) -> type[Worker[Any]]:
    key = f"{app.settings.namespace}:seen"

    def act(id: str) -> None:
        if id == "first":
            spoil()
            if fails:
                raise ValueError
        else:
            app.redis().rpush(key, json.dumps(seen()))

    class Threads(Worker[Any]):
        def perform_one(self, id: str, payloads: list[Any]) -> None:
            act(id)

        def retries_exhausted(self, batch: Any) -> None:
            spoil()

    class Tasks(Worker[Any]):
        async def perform_one(self, id: str, payloads: list[Any]) -> None:
            act(id)

    options: dict[str, Any] = {"queue_name": "q", "shards_count": 1, "concurrency": 1, "max_retry_count": 0}
    if kind == "process":
        options["isolation"] = "process"
    return app.worker(**options)(Tasks if kind == "task" else Threads)


@pytest.mark.parametrize("kind", ["thread", "process", "task"])
@pytest.mark.parametrize(
    ("init", "spoiler"),
    [
        (set_sync, "perform"),
        (set_async, "perform"),
        (None, "perform"),
        (set_sync, "failure"),
        (set_sync, "middleware"),
    ],
)
def test_a_batch_sees_what_on_server_init_has_set_and_nothing_of_others(
    make_app: Callable[..., Lowkiq], init: Any, kind: str, spoiler: str
) -> None:
    app = make_app(
        threads_per_node=1, on_server_init=init, server_middlewares=[spoil_around][: spoiler == "middleware"]
    )
    worker = add_worker(app, kind, fails=spoiler == "failure")
    worker.perform_async([{"id": "first"}, *({"id": f"second-{n}"} for n in range(3))])
    with decimal.localcontext():
        copy_context().run(burst, app)
    found = [json.loads(row) for row in app.redis().lrange(f"{app.settings.namespace}:seen", 0, -1)]  # type: ignore[union-attr]
    assert found == [[None, "init" if init else None, 17 if init else 28, False]] * 3


@pytest.mark.parametrize("is_async", [False, True])
def test_a_perform_sees_what_a_middleware_has_set(make_app: Callable[..., Lowkiq], is_async: bool) -> None:
    async def asynchronous(_worker: Any, _batch: Any, call: Callable[[], Any]) -> Any:
        tenant.set("of the middleware")
        return await call()

    def synchronous(_worker: Any, _batch: Any, call: Callable[[], Any]) -> Any:
        tenant.set("of the middleware")
        return call()

    app, found = make_app(server_middlewares=[asynchronous if is_async else synchronous]), list[str | None]()

    @app.worker(queue_name="q", shards_count=1)
    def threads(id: str, payloads: list[Any]) -> None:
        found.append(tenant.get())

    @app.worker(queue_name="a", shards_count=1)
    async def tasks(id: str, payloads: list[Any]) -> None:
        found.append(tenant.get())

    for worker in (threads, tasks):
        worker.perform_async([{"id": 1}])
    burst(app)
    assert found == ["of the middleware"] * 2


def set_alarm() -> None:
    signal.alarm(3600)


def set_timers() -> None:
    for timer in TIMERS:
        signal.setitimer(timer, 3600, 3600)


def set_watchdog() -> None:
    faulthandler.dump_traceback_later(3600, exit=True)  # which is a thread


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted by /proc")
@pytest.mark.parametrize("leave", [set_alarm, set_timers, set_watchdog])
@pytest.mark.parametrize("fails", [False, True])
def test_a_timer_that_a_job_leaves_in_a_helper_is_stopped(
    make_app: Callable[..., Lowkiq], leave: Callable[[], None], fails: bool
) -> None:
    app = make_app(threads_per_node=1)
    key = f"{app.settings.namespace}:seen"

    @app.worker(queue_name="q", shards_count=1, isolation="process", max_retry_count=0)
    def q(id: str, payloads: list[Any]) -> None:
        running = [timer for timer in TIMERS if any(signal.getitimer(timer))]
        app.redis().rpush(key, json.dumps([running, len(list(Path("/proc/self/task").iterdir()))]))
        if id == "first":
            leave()
            if fails:
                raise ValueError

    q.perform_async([{"id": "first"}, {"id": "second"}])
    burst(app)
    first, second = (json.loads(row) for row in app.redis().lrange(key, 0, -1))  # type: ignore[union-attr]
    assert first == second
