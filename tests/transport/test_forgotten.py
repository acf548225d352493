"""A connection that something between has forgotten in silence costs a push some time, and who listens a `gap`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from lowkiq import Lowkiq
from lowkiq.admin.events import Events
from lowkiq.transport import subscription
from tests.support import HOST, free_port, wait_until
from tests.transport.forgetful import Forgetful
from tests.transport.kinds.member import Member

#: How a server is reached: its own URL, and a client that the user makes.
WAYS = ("url", "user's")


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forgetful]:
    server = Member(tmp_path_factory.mktemp("redis"), free_port())
    server.start()
    with Forgetful(server.port) as proxy:
        yield proxy
    server.kill()


@pytest.fixture(params=WAYS)
def app(proxy: Forgetful, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lowkiq]:
    way: dict[str, Any] = {"redis_url": f"redis://{HOST}:{proxy.port}/0"}
    if request.param == "user's":
        way = {"redis": lambda: redis.Redis(HOST, proxy.port)}
    app = Lowkiq(namespace=tmp_path.name, push_timeout=6, **way)
    app.worker(queue_name="jobs")(lambda _: None)
    yield app
    app.close()


def next_of(events: Events, kind: str) -> None:
    wait_until(lambda: (event := events.next(1)) and event.kind == kind)


def test_who_listens_is_told_of_a_gap_and_hears_what_follows(
    app: Lowkiq, proxy: Forgetful, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription, "SILENCE", 0.2)
    monkeypatch.setattr(subscription, "ANSWER", 1.0)
    worker = app.workers["jobs"]
    with app.events() as events:
        worker.perform_async([{"id": 1}])
        next_of(events, "pushed")
        proxy.forget()
        next_of(events, "gap")
        worker.perform_async([{"id": 2}])
        next_of(events, "pushed")


def test_a_push_is_made_all_the_same(app: Lowkiq, proxy: Forgetful) -> None:
    worker = app.workers["jobs"]
    worker.perform_async([{"id": 1}])
    proxy.forget()
    assert worker.perform_async([{"id": 3}]) == (1, 0)


def test_an_awaited_push_is_made_all_the_same(app: Lowkiq, proxy: Forgetful) -> None:
    worker = app.workers["jobs"]

    async def push() -> None:
        for number in range(2):  # the first goes the usual way
            await worker.aperform_async([{"id": number}])
        proxy.forget()
        assert await worker.aperform_async([{"id": 3}]) == (1, 0)
        await app.aclose()

    asyncio.run(push())


def test_one_silent_connection_closes_the_idle_ones_too(app: Lowkiq, proxy: Forgetful) -> None:
    """Each of them would cost the next push as much."""
    worker = app.workers["jobs"]
    worker.perform_async([{"id": 1}])
    connections = app.caller.connections
    assert connections
    taken = [connections._take() for _ in range(3)]
    for connection in taken:
        connections._give_back(connection)
    proxy.forget()
    worker.perform_async([{"id": 2}])
    assert sum(connection._sock is not None for connection in taken) == 1


def test_a_slow_redis_of_this_machine_has_all_of_the_time(make_app: Callable[..., Lowkiq]) -> None:
    """Nothing forgets a connection by a socket of Unix: what is sent twice there only costs more time."""
    app = make_app(push_timeout=6)
    worker = app.worker(queue_name="jobs")(lambda _: None)
    worker.perform_async([{"id": 1}])
    client: Any = app.redis()
    before = client.info("stats")["total_connections_received"]
    client.client_pause(4_000)
    assert worker.perform_async([{"id": 2}]).new == 1
    assert client.info("stats")["total_connections_received"] == before
