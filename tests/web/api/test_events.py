"""Events: their data, and streams that end with their clients and are never too many."""

from __future__ import annotations

import asyncio
import json
import signal
import threading

import httpx
import pytest
import redis
from a2wsgi import ASGIMiddleware

from lowkiq import Lowkiq
from lowkiq.web.api.events import MAX_QUEUES, Streams
from lowkiq.web.snapshot import Snapshots
from tests.support import wait_until
from tests.web.api.stream import PATIENCE, Stream
from tests.web.live import web_of

pytestmark = pytest.mark.anyio


async def test_a_stream_begins_with_how_soon_to_come_again(web):
    async with Stream(web) as stream:
        assert (await stream.event()).raw == b"retry: 2000"
    assert stream.status == 200
    assert stream.headers["content-type"].startswith("text/event-stream")
    assert stream.headers["cache-control"] == "no-store"
    assert stream.headers["x-accel-buffering"] == "no"


async def test_a_tick_tells_the_numbers_of_all_and_of_each_queue(web):
    async with Stream(web) as stream:
        tick = await stream.event("tick")
    assert tick.data["number"] == tick.id
    assert tick.data["total"]["length"] == 2
    assert [(row["queue"], row["metrics"]["length"], row["shards_count"]) for row in tick.data["queues"]] == [
        ("q", 2, 2)
    ]
    assert tick.data["queues"][0]["merge_ratio"] == pytest.approx(1 / 3)
    assert tick.data["nodes"].keys() == {"count", "late", "missing", "doubled", "unowned", "is_well"}
    assert tick.data["nodes"]["unowned"] > 0
    assert not tick.data["nodes"]["is_well"]
    assert tick.data["server"]["memory"] > 0


async def test_ticks_go_on_with_rising_numbers_and_what_is_new(web, pushed):
    async with Stream(web) as stream:
        first = await stream.event("tick")
        await asyncio.to_thread(pushed.perform_async, [{"id": "c"}])
        last = first
        while last.data["total"]["length"] != 3:
            before, last = last, await stream.event("tick")
            assert last.id > before.id


async def test_nothing_but_a_sign_of_life_is_sent_when_nothing_is_new(app, pushed, monkeypatch):
    web = web_of(app, Streams(keep_alive=0.0))
    take = Snapshots.get

    async def same(self):
        return self.last or await take(self)

    monkeypatch.setattr(Snapshots, "get", same)
    async with Stream(web) as stream:
        await stream.event("tick")
        assert [(await stream.event()).raw for _ in range(3)] == [b": still here"] * 3


async def test_streams_share_one_poll_and_the_bytes_of_a_tick(app, web):
    bodies = []
    before = app.redis().info("commandstats")["cmdstat_info"]["calls"]
    several = [Stream(web) for _ in range(20)]
    for stream in several:
        send = stream._send

        async def keep(message, send=send):
            if message.get("body", b"").startswith(b"event: tick"):
                bodies.append(message["body"])
            await send(message)

        stream._send = keep
        await stream.__aenter__()
    ticks = [[await stream.event("tick") for _ in range(3)] for stream in several]
    for stream in several:
        await stream.__aexit__()
    polls = app.redis().info("commandstats")["cmdstat_info"]["calls"] - before - 1
    numbers = {tick.id for of_one in ticks for tick in of_one}
    assert polls <= max(numbers) + 50 < 20 * 50
    assert len({id(body) for body in bodies}) == len(set(bodies)) < len(bodies)


async def test_a_dead_redis_is_told_once_and_its_return_as_well(own_redis_server):
    app = Lowkiq(redis_url=own_redis_server.url)
    web = web_of(app, Streams(keep_alive=0.0))
    async with Stream(web) as stream:
        await stream.event("tick")
        await asyncio.to_thread(own_redis_server.stop)
        down = await stream.event("down")
        following = [(await stream.event()).name for _ in range(5)]
        await asyncio.to_thread(own_redis_server.start)
        await stream.event("up")
        await stream.event("tick")
    assert down.data["error"].startswith("Redis does not answer: ")
    assert following == [""] * 5
    app.close()


async def test_a_redis_that_hangs_is_as_good_as_dead(own_redis_server):
    app = Lowkiq(redis_url=own_redis_server.url)
    web = web_of(app)
    async with Stream(web) as stream:
        await stream.event("tick")
        own_redis_server.process.send_signal(signal.SIGSTOP)
        try:
            await stream.event("down")
        finally:
            own_redis_server.process.send_signal(signal.SIGCONT)
        await stream.event("up")
        await stream.event("tick")
    app.close()


async def test_a_stream_opened_while_redis_is_dead_says_so(own_redis_server):
    web = web_of(Lowkiq(redis_url=own_redis_server.url))
    own_redis_server.stop()
    async with Stream(web) as stream:
        assert stream.status == 200
        assert (await stream.event("down")).data.keys() == {"error"}


async def test_a_tick_is_bounded_and_has_the_queues_that_lag_most(app):
    app.redis().hset(f"{app.settings.namespace}:queues", mapping={f"idle-{n:03}": 1 for n in range(MAX_QUEUES)})
    late = app.worker(queue_name="zz-late", shards_count=1)(lambda _: None)
    late.perform_async([{"id": "a", "perform_in": 1.0}])
    async with Stream(web_of(app)) as stream:
        tick = (await stream.event("tick")).data
    assert len(tick["queues"]) == MAX_QUEUES
    assert tick["queues"][-1]["queue"] == "zz-late"
    assert tick["queues_left_out"] == 1
    assert tick["total"]["length"] == 1


async def test_other_failures_than_redis_are_not_taken_for_it(app, pushed, monkeypatch):
    """A defect of ours must reach the log, and not look like a dead Redis for ever."""
    web = web_of(app)

    async def broken(self):
        raise AssertionError("ours")

    monkeypatch.setattr(Snapshots, "get", broken)
    with pytest.raises(BaseExceptionGroup) as raised:
        async with Stream(web):
            pass
    assert raised.group_contains(AssertionError)
    assert not raised.group_contains(redis.RedisError)


async def test_a_stream_ends_when_its_client_leaves(web, streams):
    async with Stream(web) as stream:
        await stream.event("tick")
        assert streams.open == 1
        stream.leave()
        async with asyncio.timeout(PATIENCE):
            await stream.has_ended.wait()
    assert streams.open == 0


async def test_a_stream_ends_when_its_task_is_cancelled(web, streams):
    stream = Stream(web)
    await stream.__aenter__()
    stream._task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stream._task
    assert streams.open == 0


async def test_a_client_that_does_not_read_loses_its_place(app, pushed):
    streams = Streams(send_timeout=0.05)
    web = web_of(app, streams)
    async with Stream(web, reads=False) as stream, asyncio.timeout(PATIENCE):
        await stream.has_ended.wait()
    assert streams.open == 0


async def test_a_stream_ends_after_its_lifetime(app, pushed):
    web = web_of(app, Streams(lifetime=0.0))
    async with Stream(web) as stream:
        await stream.event("tick")
        async with asyncio.timeout(PATIENCE):
            await stream.has_ended.wait()


async def test_too_many_streams_are_turned_away_until_one_leaves(app, pushed):
    web = web_of(app, Streams(most=1))
    async with Stream(web) as first:
        await first.event("tick")
        async with Stream(web) as second:
            assert second.status == 503
            assert second.headers["retry-after"] == "10"
            assert "1 streams are open" in json.loads(await second._chunks.get())["error"]
    async with Stream(web) as third:
        assert third.status == 200


async def test_head_of_events_ends_at_once(web, streams):
    async with Stream(web, method="HEAD") as stream:
        async with asyncio.timeout(PATIENCE):
            await stream.has_ended.wait()
        assert stream.headers["content-type"].startswith("text/event-stream")
    assert streams.open == 0


def test_under_a_wsgi_server_a_stream_is_one_event(web, streams):
    """Which is all that can be promised there: nobody says when the client has left, and a thread would be held."""
    environ = {
        "REQUEST_METHOD": "GET", "SCRIPT_NAME": "", "PATH_INFO": "/api/v1/events", "QUERY_STRING": "",
        "SERVER_NAME": "localhost", "SERVER_PORT": "80", "SERVER_PROTOCOL": "HTTP/1.1", "HTTP_HOST": "localhost",
        "wsgi.url_scheme": "http", "wsgi.input": None,
    }  # fmt: skip
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    started = []
    try:
        body = b"".join(ASGIMiddleware(web, loop=loop)(environ, lambda *answer: started.append(answer)))
        wait_until(lambda: streams.open == 0)
        asyncio.run_coroutine_threadsafe(_settle(), loop).result(PATIENCE)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
    assert started[0][0].startswith("200")
    assert body.startswith(b"retry: 2000\n\nevent: tick\n")
    assert body.count(b"event:") == 1


async def _settle():
    """Lets what was cancelled end before its loop does."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.gather(*others, return_exceptions=True)


def test_a_real_server_streams_and_notices_that_the_client_has_left(web, streams, serve):
    with httpx.stream("GET", f"{serve(web)}/api/v1/events", timeout=PATIENCE) as response:
        lines = response.iter_lines()
        for _ in range(2):
            assert "event: tick" in lines
        assert streams.open == 1
    wait_until(lambda: streams.open == 0)
