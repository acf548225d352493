"""Streams of events: each ends with its client, and there are never too many."""

from __future__ import annotations

import asyncio
import json
import threading

import httpx
import pytest
from a2wsgi import ASGIMiddleware

from lowkiq.web.api.events import Streams
from tests.support import wait_until
from tests.web.api.stream import PATIENCE, Stream
from tests.web.live import web_of

pytestmark = pytest.mark.anyio


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
