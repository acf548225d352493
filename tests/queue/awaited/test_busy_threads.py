"""Awaited pushes and threads: the application's may be busy; what has failed as not sent is not sent later."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from lowkiq import Lowkiq, PushFailed
from lowkiq.queue.push import Producer


def work(id: str, payloads: list[Any]) -> None: ...


def test_a_push_waits_for_no_thread_of_the_application_s(make_app: Callable[..., Lowkiq]) -> None:
    app, over = make_app(push_timeout=5.0), threading.Event()
    worker = app.worker(queue_name="q", shards_count=1)(work)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        busy = loop.run_in_executor(None, over.wait)
        try:
            assert await worker.aperform_async([{"id": 1}]) == (1, 0)
        finally:
            over.set()
            await busy
        await app.aclose()

    asyncio.run(main())


@pytest.mark.parametrize("jobs", [1, 3])
def test_what_has_failed_as_not_sent_is_not_sent_later(
    make_app: Callable[..., Lowkiq], monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    """The queue takes its time to be made known, longer than anybody waits."""
    app, begun, over = make_app(push_timeout=0.3), threading.Event(), threading.Event()
    worker = app.worker(queue_name="q", shards_count=1)(work)
    register = Producer.register

    def slowly(self: Producer) -> None:
        begun.set()
        over.wait(60)
        register(self)

    monkeypatch.setattr(Producer, "register", slowly)

    async def main() -> None:
        with pytest.raises(PushFailed, match=f"none of {jobs} payloads was sent") as failed:
            await worker.aperform_async([{"id": number} for number in range(jobs)])
        assert "push them again" in str(failed.value)
        assert begun.is_set()
        over.set()
        await app.aclose()  # which waits for the thread
        assert app.metrics()["q"].pushed == 0
        monkeypatch.undo()
        assert sum(await worker.aperform_async([{"id": 1}])) == 1
        await app.aclose()

    asyncio.run(main())


def test_of_what_is_on_its_way_nobody_says_that_it_was_not_sent(
    make_app: Callable[..., Lowkiq], monkeypatch: pytest.MonkeyPatch
) -> None:
    app, over = make_app(push_timeout=0.3), threading.Event()
    worker = app.worker(queue_name="q", shards_count=1)(work)
    run_all = Producer._run_all

    def slowly(self: Producer, *args: Any) -> list[Any]:
        over.wait(60)
        return run_all(self, *args)

    monkeypatch.setattr(Producer, "_run_all", slowly)

    async def main() -> None:
        with pytest.raises(PushFailed, match="of the others nobody knows"):
            await worker.aperform_async([{"id": 1}])
        over.set()
        await app.aclose()

    asyncio.run(main())
