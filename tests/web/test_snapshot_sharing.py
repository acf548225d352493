"""Snapshots: one poll of Redis for all who look, and its errors."""

from __future__ import annotations

import asyncio
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from lowkiq.web.snapshot import Snapshot, Snapshots
from tests.web.snapshots import gather, get, get_in_time, polls


def test_a_hundred_at_once_share_one_poll(app, backend, work):
    snapshots = Snapshots(backend, interval=3600)
    before = polls(app)
    found = gather(snapshots, 100)
    assert len(found) == 100
    assert all(one is found[0] for one in found)
    assert polls(app) - before == 1
    assert snapshots.last is found[0]


def test_a_snapshot_is_new_enough_for_an_interval_and_then_polled_again(app, backend, work, time):
    snapshots = Snapshots(backend, interval=1.0)
    before = polls(app)
    assert [get(snapshots).number for _ in range(3)] == [1, 1, 1]
    time.now += 0.99
    assert get(snapshots).number == 1
    time.now += 0.01
    assert [get(snapshots).number for _ in range(3)] == [2, 2, 2]
    assert polls(app) - before == 2


def test_nobody_polls_while_nobody_looks(app, backend, time):
    snapshots = Snapshots(backend)
    get(snapshots)
    before = polls(app)
    time.now += 3600
    assert snapshots.last is not None
    assert polls(app) == before


def test_one_who_leaves_does_not_disturb_the_others(app, backend, work):
    snapshots = Snapshots(backend, interval=3600)
    before = polls(app)

    async def look():
        tasks = [asyncio.ensure_future(snapshots.get()) for _ in range(10)]
        await asyncio.sleep(0)  # each has begun to wait
        tasks[0].cancel()
        tasks[5].cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    found = asyncio.run(look())
    assert [type(one) for one in found].count(asyncio.CancelledError) == 2
    assert [one.number for one in found if isinstance(one, Snapshot)] == [1] * 8
    assert polls(app) - before == 1


def test_who_comes_when_all_have_left_gets_the_poll_that_goes_on(app, backend, work):
    snapshots = Snapshots(backend, interval=3600)
    before = polls(app)

    async def look():
        task = asyncio.ensure_future(snapshots.get())
        await asyncio.sleep(0)
        task.cancel()
        return await get_in_time(snapshots)

    assert asyncio.run(look()).number == 1
    assert polls(app) - before == 1


def test_one_loop_polls_again_and_again(app, backend, work):
    snapshots = Snapshots(backend, interval=0)

    async def look():
        return [(await get_in_time(snapshots)).number for _ in range(3)]

    assert asyncio.run(look()) == [1, 2, 3]


def test_event_loops_may_come_and_go(backend):
    """As under a WSGI adapter: the last one's task is of no use in the next."""
    snapshots = Snapshots(backend, interval=0)

    async def leave():
        task = asyncio.ensure_future(snapshots.get())
        await asyncio.sleep(0)
        task.cancel()

    asyncio.run(leave())
    assert get(snapshots).number >= 1


def test_two_event_loops_at_a_time_do_not_wait_for_each_others_task(backend, monkeypatch):
    snapshots = Snapshots(backend, interval=0)
    is_polling, may_go_on = threading.Event(), threading.Event()
    layouts = backend.layouts

    def wait():
        is_polling.set()
        assert may_go_on.wait(60)
        return layouts()

    monkeypatch.setattr(backend, "layouts", wait)

    async def open_and_get():
        asyncio.get_running_loop().call_soon(may_go_on.set)
        return await get_in_time(snapshots)

    with ThreadPoolExecutor(1) as another:
        first = another.submit(get, snapshots)
        assert is_polling.wait(60)
        second = asyncio.run(open_and_get())
        assert {first.result(60).number, second.number} == {1, 2}


def test_an_error_is_everybodys_and_the_next_look_finds_redis_back(make_app, backend_of, own_redis_server):
    app = make_app(redis_url=own_redis_server.url)
    app.worker(queue_name="q", shards_count=3)(lambda _: None).perform_async([{"id": 1}])
    snapshots = Snapshots(backend_of(app), interval=0)
    good = get(snapshots)
    own_redis_server.stop(signal.SIGKILL)
    assert [type(one) for one in gather(snapshots, 20)] == [redis.ConnectionError] * 20
    assert snapshots.last is good
    own_redis_server.start()
    found = gather(snapshots, 20)
    assert all(one is found[0] for one in found)
    assert found[0].number > good.number
    assert found[0].queues["q"].length == 1
    assert snapshots.last is found[0]


def test_one_loop_recovers_from_an_error(backend, monkeypatch):
    snapshots = Snapshots(backend, interval=3600)
    failures = iter([redis.TimeoutError("slow"), redis.ConnectionError("away")])
    layouts = backend.layouts

    def fail():
        if failure := next(failures, None):
            raise failure
        return layouts()

    monkeypatch.setattr(backend, "layouts", fail)

    async def look():
        return [(await asyncio.gather(get_in_time(snapshots), return_exceptions=True))[0] for _ in range(4)]

    slow, away, good, same = asyncio.run(look())
    assert [type(slow), type(away)] == [redis.TimeoutError, redis.ConnectionError]
    assert isinstance(good, Snapshot) and same is good


def test_an_error_is_not_kept_for_an_interval(make_app, backend_of, own_redis_server):
    snapshots = Snapshots(backend_of(make_app(redis_url=own_redis_server.url)), interval=3600)
    own_redis_server.stop(signal.SIGKILL)
    with pytest.raises(redis.ConnectionError):
        get(snapshots)
    assert snapshots.last is None
    own_redis_server.start()
    assert get(snapshots).queues == {}


def test_a_good_snapshot_is_given_while_redis_is_away_as_long_as_it_is_new_enough(
    make_app, backend_of, own_redis_server, time
):
    snapshots = Snapshots(backend_of(make_app(redis_url=own_redis_server.url)))
    good = get(snapshots)
    own_redis_server.stop(signal.SIGKILL)
    assert get(snapshots) is good
    time.now += snapshots.interval
    with pytest.raises(redis.ConnectionError):
        get(snapshots)


def test_a_redis_that_hangs_is_everybodys_error_soon(make_app, backend_of, own_redis_server):
    snapshots = Snapshots(backend_of(make_app(redis_url=own_redis_server.url)), interval=0)
    good = get(snapshots)
    own_redis_server.process.send_signal(signal.SIGSTOP)
    try:
        found = gather(snapshots, 20)  # within 60 s
    finally:
        own_redis_server.process.send_signal(signal.SIGCONT)
    assert all(isinstance(one, redis.RedisError) for one in found)
    assert get(snapshots).number > good.number
