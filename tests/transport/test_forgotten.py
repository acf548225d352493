"""A connection that something between has forgotten in silence costs a push some time, and who listens a `gap`."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from lowkiq import Lowkiq
from lowkiq.admin import events as admin_events
from lowkiq.admin.events import Events
from lowkiq.node import doorbell
from lowkiq.transport import subscription
from tests.support import wait_until
from tests.transport.forgetful import Forgetful
from tests.transport.proxied import KINDS, proxied, settings_for

#: Seconds that a client waits for a reply which no push bounds: nothing here waits for one.
LONG = 1_000.0


@pytest.fixture(scope="module")
def proxies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Forgetful]]:
    with ExitStack() as stack:
        yield cache(lambda kind: stack.enter_context(proxied(kind, tmp_path_factory.mktemp(kind), Forgetful))[0])


@pytest.fixture(params=KINDS)
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def proxy(way: str, proxies: Callable[[str], Forgetful]) -> Forgetful:
    return proxies(KINDS[way])


@pytest.fixture
def app(way: str, proxy: Forgetful, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lowkiq]:
    app = Lowkiq(namespace=tmp_path.name, push_timeout=6, **settings_for(way, proxy, monkeypatch, LONG))
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
    monkeypatch.setattr(admin_events, "PAUSE", 1e4)
    worker = app.workers["jobs"]
    with app.events() as events:
        worker.perform_async([{"id": 1}])
        next_of(events, "pushed")
        events._open_at = 0.0  # it has listened for long
        proxy.forget()
        next_of(events, "gap")
        worker.perform_async([{"id": 2}])
        next_of(events, "pushed")


def test_who_listens_asks_whether_anybody_is_there_before_it_waits_for_shards(
    app: Lowkiq, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the seconds that these wait for a connection that is forgotten come before its own."""
    with app.events() as events:
        asked = []
        monkeypatch.setattr(events, "_renew", lambda: asked.append(events._subscription._asked_at))
        events._renew_at = 0.0
        events.next(0.1)
        assert asked
        assert math.inf not in asked


def test_who_listens_goes_on_within_five_seconds() -> None:
    for look in (admin_events.READ, doorbell.LISTEN):
        looks = math.ceil(subscription.SILENCE / look) + math.ceil(subscription.ANSWER / look)
        assert looks * look <= 5.0


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


def idle_of(app: Lowkiq) -> list[Any]:
    """Three connections that are idle."""
    if connections := app.caller.connections:
        take, give = connections._take, connections._give_back
    else:
        cluster: Any = app.caller.client
        pool = cluster.primaries()[0].connection_pool
        take, give = pool.get_connection, pool.release
    taken = [take() for _ in range(3)]
    for connection in taken:
        give(connection)
    return taken


def test_one_silent_connection_closes_the_idle_ones_too(app: Lowkiq, proxy: Forgetful) -> None:
    """Each of them would cost the next push as much."""
    worker = app.workers["jobs"]
    worker.perform_async([{"id": 1}])
    taken = idle_of(app)
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
