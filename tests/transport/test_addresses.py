"""A name is resolved in bounded time, and each of its addresses has its share."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from typing import Any

import pytest
import redis

from lowkiq import Lowkiq, PushFailed, clock
from lowkiq.transport import addresses
from tests.support import BUDGET, HOST, until_pushed
from tests.transport.forgetful import Forgetful
from tests.transport.kinds.member import Member
from tests.transport.proxied import proxied


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Member]]:
    with ExitStack() as stack:
        yield cache(lambda kind: stack.enter_context(proxied(kind, tmp_path_factory.mktemp(kind), Forgetful))[1])


@pytest.fixture(params=("url", "user's", "cluster"))
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def server(way: str, servers: Callable[[str], Member]) -> Member:
    return servers("cluster" if way == "cluster" else "server")


@pytest.fixture
def app(way: str, server: Member) -> Iterator[Lowkiq]:
    """Reaches the server by a name."""
    ways: dict[str, dict[str, Any]] = {
        "url": {"redis_url": f"redis://redis.example:{server.port}/0"},
        "user's": {"redis": lambda: made_by_hand(server.port)},
        "cluster": {"redis_url": f"redis+cluster://redis.example:{server.port}"},
    }
    app = Lowkiq(push_timeout=4, **ways[way])
    app.worker(queue_name="jobs")(lambda _: None)
    yield app
    app.close()


def made_by_hand(port: int) -> Any:
    return redis.Redis("redis.example", port)


@pytest.fixture
def silent() -> Iterator[tuple[str, int]]:
    """An address whose backlog is full: nobody answers to who connects."""
    with socket.create_server((HOST, 0), backlog=0) as listener:
        address = listener.getsockname()
        others = [socket.socket() for _ in range(4)]
        for other in others:
            other.setblocking(False)
            other.connect_ex(address)
        yield address
        for other in others:
            other.close()


def resolve_to(monkeypatch: pytest.MonkeyPatch, *found: tuple[str, int]) -> None:
    rows = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", address) for address in found]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: rows)


def test_an_address_that_does_not_answer_leaves_time_for_the_others(
    app: Lowkiq, server: Member, silent: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve_to(monkeypatch, silent, (HOST, server.port))
    assert until_pushed(lambda: app.workers["jobs"].perform_async([{"id": 1}])).new <= 1
    assert (HOST, server.port) in addresses._reached.values()


def test_a_resolver_that_is_silent_costs_no_more_than_the_push_has_and_is_named(
    app: Lowkiq, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: over.wait(BUDGET) and [])
    began = clock.monotonic()
    with pytest.raises(PushFailed, match="was not resolved"):
        app.workers["jobs"].perform_async([{"id": 1}])
    assert clock.monotonic() - began < BUDGET / 2
    over.set()


def test_a_resolver_whose_first_question_was_lost_is_asked_anew(
    app: Lowkiq, server: Member, monkeypatch: pytest.MonkeyPatch
) -> None:
    over, asked = threading.Event(), list[None]()

    def resolve(*_: object) -> list[Any]:
        asked.append(None)
        if len(asked) == 1:
            over.wait(BUDGET)
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (HOST, server.port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(addresses, "ANEW", 0.1)
    assert until_pushed(lambda: app.workers["jobs"].perform_async([{"id": 1}])).new <= 1
    over.set()


def test_a_name_that_nobody_knows_is_told_with_what_to_do(app: Lowkiq, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    with pytest.raises(PushFailed, match="resolve"):
        app.workers["jobs"].perform_async([{"id": 1}])
