"""Events: what a dashboard is sent."""

from __future__ import annotations

import asyncio
import signal

import pytest
import redis

from lowkiq import Lowkiq
from lowkiq.web.api.events import MAX_QUEUES, Streams
from lowkiq.web.snapshot import Snapshots
from tests.web.api.stream import Stream
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
