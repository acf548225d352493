"""Sentinel: whatever leads to a primary of before is left within a second, also while that lives and takes writes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.sentinel import Sentinel

from lowkiq import Lowkiq
from lowkiq.queue.bell import ListBell
from lowkiq.queue.call import Caller
from lowkiq.settings import Settings
from lowkiq.transport import sentinel
from lowkiq.transport.connect import client_for_node, client_for_people, client_for_producers
from tests.support import HOST, RedisServer, free_port, wait_until
from tests.transport.kinds.member import Member

CLIENTS = {
    "people": client_for_people,
    "node": lambda settings: client_for_node(settings, 4),
    "producers": client_for_producers,
}
WHERE = ("EVAL", "return redis.call('GET', 'where')", 0)


class Service:
    """What the sentinels name: one of two servers, neither of which knows that it is not the primary."""

    url = "redis+sentinel://127.0.0.1:1/service/0"

    def __init__(self, directory: Path) -> None:
        self.servers = [Member(directory / name, free_port()) for name in ("old", "new")]
        self.looks = 0
        for server, name in zip(self.servers, ("old", "new"), strict=True):
            server.start()
            server.ask("SET", "where", name)
        self.fail_back()

    def fail_back(self) -> None:
        self.primary = self.servers[0]

    def fail_over(self) -> None:
        self.primary = self.servers[1]

    def discover(self, *_: Any) -> tuple[str, int]:
        self.looks += 1
        return HOST, self.primary.port


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    service = Service(tmp_path_factory.mktemp("service"))
    yield service
    for server in service.servers:
        server.kill()


@pytest.fixture
def service(servers: Service, monkeypatch: pytest.MonkeyPatch) -> Service:
    servers.fail_back()
    for asks in (Sentinel, sentinel._Sentinel):
        monkeypatch.setattr(asks, "discover_master", servers.discover)
    monkeypatch.setattr(sentinel, "FOLLOW_INTERVAL", 0.05)
    return servers


@pytest.fixture(params=CLIENTS)
def caller(request: pytest.FixtureRequest, service: Service) -> Iterator[Caller]:
    caller = Caller(CLIENTS[request.param](Settings(redis_url=service.url)))
    yield caller
    caller.close()


@pytest.mark.parametrize("command", [WHERE, ("GET", "where"), ("HMGET", "{}", "x")])
def test_an_idle_connection_to_the_old_primary_is_left(service: Service, caller: Caller, command: Any) -> None:
    """Right after a look the sentinels are not asked again: a second is what a failover may cost."""
    caller.commands([command])
    service.fail_over()
    wait_until(lambda: caller.commands([WHERE]) == [b"new"])


def test_a_connection_that_is_in_use_as_it_happens_does_not_come_back(service: Service, caller: Caller) -> None:
    busy = caller.connections
    assert busy
    in_use = busy._take()
    service.fail_over()
    wait_until(lambda: caller.commands([WHERE]) == [b"new"])
    busy._give_back(in_use)
    assert {caller.commands([WHERE])[0] for _ in range(5)} == {b"new"}


def test_the_sentinels_are_asked_once_an_interval(
    service: Service, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller.commands([WHERE])
    monkeypatch.setattr(sentinel, "FOLLOW_INTERVAL", 60.0)
    before = service.looks
    for _ in range(100):
        caller.commands([WHERE])
    assert service.looks == before


def test_a_thread_that_waits_for_a_ring_listens_to_the_new_primary(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lowkiq.queue.bell.LISTEN", 1)
    caller = Caller(client_for_node(Settings(redis_url=service.url), 4))
    assert caller.connections
    bell = ListBell(caller.connections, "bell")
    heard: list[Any] = []
    stopping = threading.Event()

    def listen() -> None:
        while not stopping.is_set():
            heard.append(bell.wait(0.2, is_idle=False).ring)

    thread = threading.Thread(target=listen)
    thread.start()
    try:
        wait_until(lambda: service.servers[0].ask("CLIENT", "LIST", "TYPE", "NORMAL"))
        service.fail_over()

        def is_heard() -> bool:
            caller.commands([WHERE])  # as a node's other threads do
            service.servers[1].ask("RPUSH", "bell", "lowkiq:{q:0}: 0 0")
            return any(heard)

        wait_until(is_heard)
    finally:
        stopping.set()
        thread.join()
        bell.close()
        caller.close()
        service.servers[1].ask("DEL", "bell")


def test_events_are_those_of_the_new_primary_and_a_gap_is_told(service: Service) -> None:
    app = Lowkiq(redis_url=service.url, namespace="events")
    worker = app.worker(queue_name="q", shards_count=1)(lambda _: None)
    with app.events("q") as events:
        worker.perform_async([{"id": 1, "payload": 1}])
        assert events.next(10)
        service.fail_over()

        def kinds() -> set[str]:
            worker.perform_async([{"id": 2, "payload": 2}])
            return {event.kind for event in iter(lambda: events.next(0.1), None)}

        seen: set[str] = set()
        wait_until(lambda: seen.update(kinds()) or {"gap", "pushed"} <= seen)
        assert service.servers[1].ask("EXISTS", "lowkiq:{q:0}:payloads") or seen
    app.close()


def test_what_the_new_primary_does_not_know_of_is_not_pushed_to(service: Service) -> None:
    """The beginning of a reshard may be lost: nobody would own the shards that only the old primary knew of."""
    app = Lowkiq(redis_url=service.url, namespace="reshard")
    worker = app.worker(queue_name="q", shards_count=1)(lambda _: None)
    old, new = service.servers
    for server, layout in ((old, "2:1:2"), (new, "2:1")):
        server.ask("HSET", "reshard:queues", "q", layout)
    worker.perform_async([{"id": 1, "payload": 1}])
    assert old.ask("HLEN", "reshard:{q@2:0}:payloads") == 1
    service.fail_over()

    def has_come() -> Any:
        worker.perform_async([{"id": 2, "payload": 2}])
        return new.ask("HLEN", "reshard:{q:0}:payloads")

    wait_until(has_come)
    assert not new.ask("EXISTS", "reshard:{q@2:0}:payloads")
    app.close()


def test_nor_by_who_awaits_after_a_loss(own_redis_server: RedisServer) -> None:
    app = Lowkiq(redis_url=own_redis_server.url, namespace="awaited")
    worker = app.worker(queue_name="q", shards_count=1)(lambda _: None)
    own_redis_server.ask("HSET", "awaited:queues", "q", "2:1:2")

    async def push() -> None:
        await worker.aperform_async([{"id": 1, "payload": 1}])
        await worker.aperform_async([{"id": 1, "payload": 2}])
        assert own_redis_server.ask("HLEN", "awaited:{q@2:0}:payloads") == 1
        own_redis_server.ask("HSET", "awaited:queues", "q", "2:1")
        own_redis_server.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        await worker.aperform_async([{"id": 2, "payload": 2}])

    asyncio.run(push())
    assert own_redis_server.ask("HLEN", "awaited:{q:0}:payloads") == 1
    app.close()


class Failing:
    """A sentinel that fails over: what it knows of the primary is of the old one until all replicas follow the new."""

    def __init__(self, address: tuple[bytes, int] | Exception | None) -> None:
        self._address = address

    def sentinel_masters(self) -> dict[str, Any]:
        is_well = {"is_master": True, "is_sdown": False, "is_odown": False, "num-other-sentinels": 2}
        return {"s": is_well | {"ip": "old", "port": 1}}

    def sentinel_get_master_addr_by_name(self, _: str) -> tuple[bytes, int] | None:
        if isinstance(self._address, Exception):
            raise self._address
        return self._address


def test_a_primary_is_followed_while_the_failover_still_goes_on() -> None:
    """The old one takes writes until it is over, which nobody will ever read."""
    asked = sentinel._Sentinel([])
    away, unknowing, knows = Failing(RedisTimeoutError("away")), Failing(None), Failing((b"new", 2))
    asked.sentinels = cast("Any", [away, unknowing, knows])
    assert asked.discover_master("s") == ("new", 2)
    assert asked.sentinels == cast("Any", [knows, away, unknowing])
