"""Awaited pushes: of which event loops, who gives up, and what is around them."""

from __future__ import annotations

import asyncio
import os
import threading
import time

import pytest

from lowkiq import Lowkiq, Pushed, SettingsError
from lowkiq.queue import awaited
from tests.queue.awaited.pushes import payloads, run, together, work


def test_what_is_given_up_before_its_turn_is_not_pushed(app, worker):
    async def main():
        first = asyncio.create_task(worker.aperform_async([{"id": n} for n in range(5_000)]))
        second = asyncio.create_task(worker.aperform_async([{"id": "no"}]))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        second.cancel()
        assert await first == (5_000, 0)

    run(app, main())
    assert payloads(worker, "no") == {}


def test_a_timeout_of_the_caller_ends_only_its_own_wait(app, worker):
    async def main():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await worker.aperform_async([{"id": "a"}])
        return await worker.aperform_async([{"id": "b"}])

    assert run(app, main()) == (1, 0)


def test_loops_that_follow_one_another_have_a_connection_each_and_leave_none(app, worker, connected):
    for number in range(3):
        assert asyncio.run(worker.aperform_async([{"id": number}])) == (1, 0)
        assert asyncio.run(together(worker, *({"id": f"{number}-{n}"} for n in range(10)))) == [(1, 0)] * 10
    assert [connection.is_open for connection in connected] == [False] * (len(connected) - 1) + [True]
    app.close()
    assert not any(connection.is_open for connection in connected)


def test_a_loop_that_ends_amid_a_push_keeps_no_other_from_it(app, worker):
    async def leave():
        worker.perform_async([{"id": "before"}])
        left = asyncio.create_task(worker.aperform_async([{"id": number} for number in range(50_000)]))
        await asyncio.sleep(0.01)
        assert not left.done()

    asyncio.run(leave())
    assert run(app, worker.aperform_async([{"id": "after"}])) == (1, 0)


def test_loops_of_several_threads_push_at_a_time(app, worker):
    results = []

    async def main(name):
        for round in range(20):
            results.extend(await together(worker, *({"id": f"{name}-{round}-{n}"} for n in range(10))))

    threads = [threading.Thread(target=lambda name=name: asyncio.run(main(name))) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == [(1, 0)] * 800


def test_a_child_has_a_connection_of_its_own(app, worker):
    async def parent():
        await worker.aperform_async([{"id": "a"}])
        child = os.fork()
        if child == 0:
            os._exit(_of_child(app, worker))
        _, status = await asyncio.to_thread(os.waitpid, child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        return await together(worker, *({"id": f"parent-{n}"} for n in range(10)))

    assert run(app, parent()) == [(1, 0)] * 10
    assert payloads(worker, "child") == {"child": [""]}


def _of_child(app, worker) -> int:
    asyncio._set_running_loop(None)
    pushed = asyncio.run(worker.aperform_async([{"id": "child"}]))
    app.close()
    return 0 if pushed == (1, 0) else 1


def test_a_closed_application_opens_again(app, worker, connected):
    async def main():
        for number in range(3):
            assert await worker.aperform_async([{"id": f"{number}a"}]) == (1, 0)
            assert await together(worker, *({"id": f"{number}-{n}"} for n in range(5))) == [(1, 0)] * 5
            await app.aclose()
        await worker.aperform_async([{"id": "x"}])
        app.close()
        await asyncio.sleep(0)

    asyncio.run(main())
    assert not any(connection.is_open for connection in connected)


def test_to_close_waits_for_what_is_being_pushed(app, worker):
    async def main():
        task = asyncio.create_task(worker.aperform_async([{"id": number} for number in range(3_000)]))
        await asyncio.sleep(0)
        await app.aclose()
        return await task

    assert asyncio.run(main()) == (3_000, 0)


def test_middlewares_may_be_async_around_what_is_awaited(make_app):
    log = []

    async def timed(worker, batch, call):
        log.append([job["id"] for job in batch])
        result = await call()
        log.append(result)
        return result

    def plain(worker, batch, call):
        batch.append({"id": "added"})
        return call()

    app = make_app(client_middlewares=[timed, plain])
    worker = app.worker(queue_name="q")(work)
    assert run(app, worker.aperform_async({"id": id} for id in "ab")) == (3, 0)
    assert log == [["a", "b"], (3, 0)]


def test_a_middleware_that_does_not_call_pushes_nothing(make_app):
    app = make_app(client_middlewares=[lambda worker, batch, call: Pushed(0, 0)])
    assert run(app, app.worker(queue_name="q")(work).aperform_async([{"id": "a"}])) == (0, 0)


def test_an_async_middleware_around_a_push_that_is_not_awaited_is_refused(make_app):
    async def timed(worker, batch, call):
        return await call()

    class Timed:
        async def __call__(self, worker, batch, call):
            return await call()

    for middleware in (timed, Timed()):
        app = make_app(client_middlewares=[lambda worker, batch, call: call(), middleware])
        worker = app.worker(queue_name="q")(work)
        with pytest.raises(SettingsError, match=r"is async, so it can only be around .* await aperform_async instead"):
            worker.perform_async([{"id": "a"}])
    assert app.metrics()["q"].length == 0


@pytest.mark.parametrize("jobs", [20_000, [1] * 3_000], ids=["a list", "singles"])
def test_the_loop_is_not_blocked(app, worker, connected, jobs, monkeypatch):
    """By the time of each of our steps: the machine, which others share, may stop the process for longer."""
    steps = []
    handle = asyncio.Handle._run

    def timed(self):
        began = time.thread_time()
        handle(self)
        if "AwaitedPushes" in repr(self) or "NonBlocking" in repr(self):
            steps.append(time.thread_time() - began)

    async def main():
        await worker.aperform_async([{"id": "before"}])
        monkeypatch.setattr(asyncio.Handle, "_run", timed)
        try:
            if isinstance(jobs, int):
                await worker.aperform_async([{"id": number, "payload": {"n": number}} for number in range(jobs)])
            else:
                await together(worker, *({"id": number} for number in range(len(jobs))))
        finally:
            monkeypatch.undo()

    run(app, main())
    assert len(steps) > 10
    assert sorted(steps)[-2] < 0.02, "the collector may have come by once"


def test_clients_of_the_users_making_push_in_a_thread(redis_server, make_app, connected):
    import redis

    app = make_app(redis=lambda: redis.Redis.from_url(redis_server.url))
    worker = app.worker(queue_name="q")(work)
    assert run(app, together(worker, *({"id": number} for number in range(30)), {"id": 1, "payload": 2}))[-1] == (0, 1)
    assert run(app, worker.aperform_async([{"id": n} for n in range(30, 2_000)])) == (1_970, 0)
    assert connected == []


def test_fakeredis_will_do():
    fakeredis = pytest.importorskip("fakeredis")
    server = fakeredis.FakeServer()
    app = Lowkiq(redis=lambda: fakeredis.FakeRedis(server=server))
    worker = app.worker(queue_name="q")(work)
    assert run(app, together(worker, *({"id": number} for number in range(10)))) == [(1, 0)] * 10
    app.close()


def test_uvloop_will_do(app, worker, connected):
    uvloop = pytest.importorskip("uvloop")

    async def main():
        assert await worker.aperform_async([{"id": number} for number in range(5_000)]) == (5_000, 0)
        assert await together(worker, *({"id": f"x{number}"} for number in range(100))) == [(1, 0)] * 100
        await app.aclose()

    uvloop.run(main())
    assert len(connected) == 1


def test_most_singles_go_together(app, worker, connected, monkeypatch):
    scripts = []
    command_of = app.caller.command_of

    def spy(call, **options):
        scripts.append(call.script)
        return command_of(call, **options)

    async def main():
        await worker.aperform_async([{"id": "before"}])
        monkeypatch.setattr(app.caller, "command_of", spy)
        await together(worker, *({"id": number} for number in range(awaited.MOST_TOGETHER // 2)))
        monkeypatch.undo()

    worker.perform_async([{"id": number} for number in "abcdefghijklmno"])  # each shard has its layout
    run(app, main())
    # On a busy machine some are sent before the others have come; each for itself would be one a single.
    assert len(scripts) <= 10
    assert "push_apart" in scripts
