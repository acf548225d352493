"""The API's stream of events: what happens arrives, for whoever listens; who goes away, or does not read, is let go."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from lowkiq import Lowkiq
from lowkiq.web.api import events as operation
from lowkiq.web.security import ended_sessions
from tests.queue.shard_driver import PAST, ShardDriver
from tests.support import wait_until
from tests.web.conftest import TOKEN, open_queue

MOST = 3


@pytest.fixture
def driver(app: Lowkiq) -> ShardDriver:
    open_queue(app, "other")
    return open_queue(app)


@pytest.fixture
def url(serve: Any, make_web: Any, driver: ShardDriver, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of the stream of a view that has few places for listeners."""
    monkeypatch.setattr(operation, "MOST_LISTENERS", MOST)
    monkeypatch.setattr(operation, "_places", threading.BoundedSemaphore(MOST))
    return f"{serve(make_web())}/api/v1/events"


@contextlib.contextmanager
def listening(url: str) -> Iterator[Iterator[str]]:
    """The lines of a stream, from its first on; so shards know by then that somebody listens."""
    with httpx.stream("GET", url, timeout=30) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = response.iter_lines()
        assert next(lines) == ": listening"
        yield lines


def rows(lines: Iterator[str], count: int) -> list[dict[str, Any]]:
    """So many events; each names its kind twice."""
    found: list[dict[str, Any]] = []
    kind = ""
    for line in lines:
        name, _, text = line.partition(": ")
        if name == "event":
            kind = text
        elif name == "data":
            found.append(json.loads(text))
            assert found[-1]["kind"] == kind
        if len(found) == count:
            return found
    pytest.fail(f"the stream ended after {found}")


def listeners(driver: ShardDriver) -> int:
    """Subscriptions to events in Redis."""
    channel = f"{driver.app.settings.namespace}:bell:events:q"
    ((_, count),) = driver.redis.pubsub_numsub(channel)
    return int(count)


def places() -> int:
    return operation._places._value


def work(driver: ShardDriver) -> None:
    """A job that is done, one that fails, and one that goes to the morgue for it."""
    for id in ("good", "bad", "worst"):
        driver.push(id, b"p", 1.0, PAST)
    lease = driver.lease("n1")
    lease.claim()
    lease.settle(failed=[("bad", 0, 60.0, "no stock")], exhausted=[("worst", "no such order", "bury")], rest="ack")
    driver.actions.delete(["bad"])


def test_what_happens_to_jobs_arrives_and_filters_choose(url: str, driver: ShardDriver) -> None:
    with (
        listening(url) as all_of_it,
        listening(f"{url}?queue=q&id=bad&kinds=pushed,failed") as some,
        listening(f"{url}?queue=other") as other,
    ):
        before = time.time() - 60
        work(driver)
        open_queue(driver.app, "other").push("x")
        found = rows(all_of_it, 11)
        kinds = {id: [row["kind"] for row in found if row["id"] == id] for id in ("good", "bad", "worst", "x")}
        assert kinds == {
            "good": ["pushed", "started", "done"],
            "bad": ["pushed", "started", "failed", "deleted"],
            "worst": ["pushed", "started", "buried"],
            "x": ["pushed"],
        }
        (failed,) = [row for row in found if row["kind"] == "failed"]
        assert (failed["queue"], failed["node"], failed["detail"]) == ("q", "n1", "no stock")
        assert before < failed["at"] < time.time() + 60
        assert [(row["id"], row["kind"]) for row in rows(some, 2)] == [("bad", "pushed"), ("bad", "failed")]
        assert [(row["queue"], row["id"]) for row in rows(other, 1)] == [("other", "x")]


def test_several_ids_can_be_chosen_and_as_many_kinds(url: str, driver: ShardDriver) -> None:
    with listening(f"{url}?id=bad&id=worst&kinds=pushed,buried") as lines:
        work(driver)
        told = [(row["id"], row["kind"]) for row in rows(lines, 3)]
    assert told == [("bad", "pushed"), ("worst", "pushed"), ("worst", "buried")]


def test_ids_that_are_no_text_and_wrong_choices_are_told(url: str, driver: ShardDriver) -> None:
    with listening(f"{url}?queue=q") as lines:
        driver.redis.publish(f"{driver.app.settings.namespace}:bell:events:q", b"junk")
        driver.redis.publish(f"{driver.app.settings.namespace}:bell:events:q", b"2 \xff\ndone 1.5 0 ")
        (row,) = rows(lines, 1)
        assert (row["id"], row["kind"]) == ("\\udcff\n", "done")
    for query, text in (
        ("kinds=failled", "did you mean"),
        ("queue=ghost", "no queue 'ghost'"),
        ("limit=3", "limit"),
    ):
        refused = httpx.get(f"{url}?{query}")
        assert refused.status_code == 400 and text in refused.json()["error"], refused.text
    wait_until(lambda: places() == MOST)


def test_a_stream_ends_with_its_session_wherever_that_is_signed_out(
    serve: Any, make_web: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ended_sessions, "NEW_ENOUGH", 0.0)
    here, there = (serve(make_web(token=TOKEN)) for _ in range(2))
    with httpx.Client(timeout=60) as client:
        client.post(f"{here}/sign-in", data={"access_token": TOKEN})
        with client.stream("GET", f"{there}/api/v1/events") as response:
            lines = response.iter_lines()
            assert next(lines) == ": listening"
            token = client.get(f"{here}/api/v1/token").json()["token"]
            client.post(f"{here}/sign-out", data={"token": token})
            assert [line for line in lines if line] == []


@pytest.mark.parametrize("version", ["2.3", "2.4"])
def test_one_at_a_time_waits_to_hear_that_the_listener_has_gone(
    make_web: Any, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setattr(operation, "READ", 0.01)
    monkeypatch.setattr(operation, "KEEP_ALIVE", 0.0)
    waiting, most, sent = 0, 0, []

    async def main() -> None:
        has_gone = asyncio.Event()

        async def receive() -> dict[str, str]:
            nonlocal waiting, most
            waiting += 1
            most = max(most, waiting)
            try:
                await has_gone.wait()
            finally:
                waiting -= 1
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)
            if len(sent) == 5:
                has_gone.set()

        asgi = {"version": "3.0", "spec_version": version}
        scope = {"type": "http", "asgi": asgi, "method": "GET", "path": "/api/v1/events", "query_string": b"",
                 "headers": [(b"host", b"localhost")], "client": ("127.0.0.1", 1)}  # fmt: skip
        async with asyncio.timeout(60):
            await make_web()(scope, receive, send)

    with ThreadPoolExecutor() as pool:
        pool.submit(asyncio.run, main()).result()
    assert dict(sent[0]["headers"])[b"x-accel-buffering"] == b"no"
    assert (most, len(sent) < 50) == (1, True)


def test_who_goes_away_frees_its_place_and_subscription(url: str, driver: ShardDriver) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(MOST):
            stack.enter_context(listening(url))
        assert listeners(driver) == MOST
        refused = httpx.get(url)
        assert refused.status_code == 429 and refused.headers["retry-after"]
    wait_until(lambda: (listeners(driver), places()) == (0, MOST))
    for pause in (0.0, 0.0, 0.0, 0.001, 0.005, 0.01):  # gone before it was answered, or in the middle of that
        address = urlsplit(url)
        with socket.create_connection((address.hostname or "", address.port or 0)) as client:
            client.sendall(f"GET {address.path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            threading.Event().wait(pause)
    wait_until(lambda: (listeners(driver), places()) == (0, MOST))


def test_who_does_not_read_is_let_go_and_holds_nobody_up(
    url: str, driver: ShardDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operation, "SENT_WITHIN", 0.5)
    address, channel = urlsplit(url), f"{driver.app.settings.namespace}:bell:events:q"
    with socket.socket() as client, listening(f"{url}?kinds=buried") as other:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect((address.hostname, address.port))
        client.sendall(f"GET {address.path}?kinds=done HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        wait_until(lambda: listeners(driver) == 2)
        large = b"7000 " + b"x" * 7000 + b"done 1.5 0 "

        def is_let_go() -> bool:
            for _ in range(100):
                driver.redis.publish(channel, large)
            return listeners(driver) == 1 and places() == MOST - 1

        wait_until(is_let_go)
        driver.redis.publish(channel, b"1 aburied 1.5 0 ")
        assert rows(other, 1)[0]["id"] == "a"
