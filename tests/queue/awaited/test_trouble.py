"""Awaited pushes when Redis is stopped, killed, refuses or cuts off: none waits too long, and none is lost unsaid."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator

import pytest

from lowkiq import PushFailed
from tests.queue.awaited.pushes import run, together, work
from tests.support import RedisServer, free_port, running_redis, wait_until

#: Seconds that a push may wait, and that a busy machine may take besides.
TIMEOUT, SPARE = 0.5, 20.0

ONE = [{"id": "a", "payload": "x"}]
MANY = [{"id": number, "payload": "x"} for number in range(3_000)]


@pytest.fixture(params=["unix", "tcp"])
def server(request) -> Iterator[RedisServer]:
    with running_redis(port=free_port() if request.param == "tcp" else 0) as server:
        yield server


@pytest.fixture
def app(server, make_app):
    return make_app(redis_url=server.url, push_timeout=TIMEOUT)


@pytest.fixture
def worker(app):
    return app.worker(queue_name="q", shards_count=3)(work)


async def failures(worker, *pushes) -> list[str]:
    """The texts of the pushes' failures, which come in time, while the loop goes on."""
    began = last = time.monotonic()
    pauses = []
    tasks = [asyncio.create_task(worker.aperform_async(jobs)) for jobs in pushes]
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0.01)
        pauses.append(time.monotonic() - last)
        last = time.monotonic()
    assert last - began < TIMEOUT + SPARE
    assert sorted(pauses)[len(pauses) // 2] < TIMEOUT / 2
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(result) for result in results} == {PushFailed}
    return [str(result) for result in results]


async def pushed(worker, jobs) -> int:
    """How many payloads Redis takes, now that it is well; on a busy machine not all in time."""
    until = time.monotonic() + 60
    while True:
        try:
            return sum(await worker.aperform_async(jobs))
        except PushFailed:
            assert time.monotonic() < until


@pytest.mark.parametrize("others", [0, 20])
@pytest.mark.parametrize("jobs", [ONE, MANY], ids=["one", "many"])
def test_a_stopped_redis_costs_no_more_than_the_timeout(server, app, worker, jobs, others):
    async def main():
        await worker.aperform_async([{"id": "before"}])
        await together(worker, *({"id": f"before-{number}"} for number in range(10)))
        server.pause()
        text, *texts = await failures(worker, jobs, *([{"id": f"other-{number}"}] for number in range(others)))
        server.resume()
        assert f"took 0 of {len(jobs)} payloads for sure, of the others nobody knows: no answer within 0.5 s" in text
        assert all("push all of them again" in text or "none of 1 payloads was sent" in text for text in texts)
        assert await pushed(worker, jobs) == len(jobs)
        for number in range(9):
            assert await pushed(worker, [{"id": f"x{number}"}]) == 1

    run(app, main())


@pytest.mark.parametrize("jobs", [ONE, MANY], ids=["one", "many"])
def test_nor_does_one_that_was_stopped_before_the_first_push(server, app, worker, jobs):
    async def main():
        server.pause()
        for text in await failures(worker, jobs, *([jobs[0]] for _ in range(5))):
            assert "payloads was sent" in text
        server.resume()
        assert await pushed(worker, jobs) == len(jobs)

    run(app, main())


def test_one_that_answers_in_time_has_the_jobs(server, make_app):
    app = make_app(redis_url=server.url, push_timeout=60)
    worker = app.worker(queue_name="q")(work)

    async def main():
        await worker.aperform_async(ONE)
        server.pause()
        asyncio.get_running_loop().call_later(0.3, server.resume)
        assert await together(worker, *({"id": number} for number in range(20))) == [(1, 0)] * 20

    run(app, main())


def test_what_is_in_redis_of_a_list_is_told(server, app, worker, monkeypatch):
    """Redis stops once it has taken a part."""
    from lowkiq.queue import awaited

    monkeypatch.setattr(awaited, "PUSHES_AT_ONCE", 1)

    async def main():
        await worker.aperform_async([{"id": "before"}])
        with server.client() as client:
            client.delete(f"{app.settings.namespace}:{{q:0}}:due")
        task = asyncio.create_task(worker.aperform_async([{"id": number} for number in range(20_000)]))
        with server.client() as client:
            while not client.exists(f"{app.settings.namespace}:{{q:0}}:due"):
                await asyncio.sleep(0)
        server.pause()
        with pytest.raises(PushFailed, match=r"took \d+ of 20000 payloads for sure, of the others nobody") as caught:
            await task
        server.resume()
        return caught.value

    error = run(app, main())
    assert 0 < error.new < 20_000
    assert app.metrics()["q"].pushed - 1 >= error.new


def test_a_killed_redis_that_comes_back_in_time_has_the_jobs(own_redis_server, make_app):
    app = make_app(redis_url=own_redis_server.url, push_timeout=30)
    worker = app.worker(queue_name="q")(work)

    async def main():
        await worker.aperform_async([{"id": "before"}])
        await together(worker, *({"id": f"before-{number}"} for number in range(10)))
        own_redis_server.kill()
        pushes = asyncio.gather(*(worker.aperform_async([{"id": number}]) for number in range(20)))
        own_redis_server.start(wait=False)
        await pushes
        return await worker.aperform_async([{"id": "after"}])

    assert run(app, main()) == (1, 0)
    assert app.metrics()["q"].length == 32


def test_a_redis_that_is_away_is_told(server, app, worker):
    async def main():
        await worker.aperform_async(ONE)
        server.kill()
        for text in await failures(worker, ONE, MANY, ONE):
            assert "none of" in text or "nobody knows" in text
        server.start()
        assert await pushed(worker, [{"id": "after"}]) == 1

    run(app, main())


def test_connections_that_are_cut_again_and_again_lose_nothing(server, make_app):
    app = make_app(redis_url=server.url)
    worker = app.worker(queue_name="q", shards_count=3)(work)
    is_over = False
    cuts = 0

    async def cut():
        nonlocal cuts
        with server.client() as client:
            while not is_over:
                cuts += 1
                client.client_kill_filter(_type="normal", skipme=True)
                await asyncio.sleep(0.3)

    async def push(name):
        for number in range(100):
            await worker.aperform_async([{"id": name, "payload": number}])
            await asyncio.sleep(0.01)

    async def main():
        nonlocal is_over
        cutting = asyncio.create_task(cut())
        await asyncio.gather(*map(push, "abcdefgh"), worker.aperform_async([{"id": n} for n in range(20_000)]))
        is_over = True
        await cutting

    run(app, main())
    assert cuts > 3
    assert {job.id: job.payloads for job in worker.queries.fetch(list("abcdefgh"))} == {
        id: list(range(100)) for id in "abcdefgh"
    }
    assert app.metrics()["q"].length == 20_008


@pytest.mark.parametrize(
    ("begin", "end", "says"),
    [
        (["REPLICAOF", "127.0.0.1", "1"], ["REPLICAOF", "NO", "ONE"], "this Redis is a replica"),
        (["CONFIG", "SET", "maxmemory", "1"], ["CONFIG", "SET", "maxmemory", "0"], "memory is full"),
        (["ACL", "SETUSER", "default", "-evalsha"], ["ACL", "SETUSER", "default", "+evalsha"], "may not do this"),
    ],
)
def test_what_redis_refuses_is_told_at_once_and_taken_afterwards(server, app, worker, begin, end, says):
    async def main():
        await worker.aperform_async([{"id": "before"}])
        await together(worker, *({"id": f"before-{number}"} for number in range(10)))
        with server.client() as admin:
            admin.execute_command(*begin)
            texts = await failures(worker, MANY, *([{"id": number}] for number in range(10)))
            admin.execute_command(*end)
        assert all(says in text and "took 0 of" in text for text in texts)
        assert await pushed(worker, MANY) == 3_000
        assert await pushed(worker, [{"id": "x"}]) == 1

    run(app, main())


def test_too_many_clients_are_told_and_then_there_is_room(server, app, worker):
    async def main():
        await worker.aperform_async([{"id": "before"}])
        with server.client() as admin:
            admin.config_set("maxclients", 1)
            admin.client_kill_filter(_type="normal", skipme=True)
            for text in await failures(worker, ONE, MANY):
                assert "too many clients" in text or "no answer" in text
            admin.config_set("maxclients", 1_000)
        assert await pushed(worker, MANY) == 3_000

    run(app, main())


def test_a_password_is_shown_to_redis(make_app):
    port = free_port()
    with running_redis_with_password(port) as url:
        app = make_app(redis_url=url)
        worker = app.worker(queue_name="q")(work)
        assert run(app, together(worker, *({"id": number} for number in range(20)))) == [(1, 0)] * 20


@contextlib.contextmanager
def running_redis_with_password(port: int) -> Iterator[str]:
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as directory:
        server = RedisServer(Path(directory), "--requirepass", "secret", port=port, client={"password": "secret"})
        server.start()
        try:
            yield f"redis://:secret@127.0.0.1:{port}/3"
        finally:
            server.stop()


def test_a_loop_that_was_blocked_does_not_take_redis_for_silent(app, worker):
    """By the user's own code, for longer than a push may take."""

    async def main():
        await worker.aperform_async([{"id": "before"}])
        tasks = [asyncio.create_task(worker.aperform_async([{"id": number}])) for number in range(10)]
        tasks.append(asyncio.create_task(worker.aperform_async(MANY)))
        for _ in range(3):
            await asyncio.sleep(0)
        until = time.monotonic() + 2 * TIMEOUT
        while time.monotonic() < until:
            pass
        return await asyncio.gather(*tasks)

    results = run(app, main())
    assert sum(map(sum, results)) == 3_010


def test_a_connection_that_redis_closes_meanwhile_is_noticed(server, app, worker):
    async def main():
        await worker.aperform_async([{"id": "before"}])
        await worker.aperform_async([{"id": "again"}])
        connection = app._awaited.current()._connection
        with server.client() as admin:
            admin.client_kill_filter(_type="normal", skipme=True)
        until = time.monotonic() + 60
        while connection.is_open and time.monotonic() < until:
            await asyncio.sleep(0.01)
        assert not connection.is_open
        return await worker.aperform_async([{"id": "after"}])

    assert run(app, main()) == (1, 0)
    wait_until(lambda: app.metrics()["q"].length == 3)
