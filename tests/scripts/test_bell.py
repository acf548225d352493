"""The list on which an idle thread waits for pushes."""

from __future__ import annotations

import threading

import pytest

from lowkiq.store import bell as bell_module
from lowkiq.store.bell import ListBell
from lowkiq.store.connect import client_for_node
from tests.scripts.shard_driver import FUTURE
from tests.support import wait_until


@pytest.fixture
def bell(app):
    client = client_for_node(app.settings, 2)
    bell = ListBell.of(client, f"{app.settings.namespace}:bell:n:0")
    assert bell
    yield bell
    bell.close()
    client.close()


@pytest.fixture
def rung(shard, bell):
    """A shard whose owner is idle, and hears of it by that bell."""
    shard.caller.run(shard.shard.acquire("n", 60, 3, bell=bell.key))
    return shard


def test_a_push_is_heard_with_its_shard(rung, bell) -> None:
    rung.push("a")
    assert bell.wait(30) == [rung.prefix + b" 0.000000"]


def test_a_push_for_later_tells_when(rung, bell) -> None:
    rung.push("a", perform_in=FUTURE)
    (message,) = bell.wait(30)
    assert float(message.split()[1]) == pytest.approx(FUTURE - rung.now(), abs=30)


def test_a_push_ends_a_wait(rung, bell) -> None:
    heard: list[bytes] = []
    thread = threading.Thread(target=lambda: heard.extend(bell.wait(30)))
    thread.start()
    wait_until(lambda: any(row["cmd"] == "blpop" for row in rung.redis.client_list()))
    rung.push("a")
    thread.join(20)
    assert heard


def test_a_ring_within_the_node_ends_a_wait_and_the_next_still_hears_pushes(rung, bell) -> None:
    bell.ring()
    assert bell.wait(30) == []
    rung.push("a")
    assert bell.wait(30)


def test_rings_are_never_waited_for(bell) -> None:
    for _ in range(100_000):
        bell.ring()
    assert bell.wait(30) == []


def test_nobody_rings(bell) -> None:
    assert bell.wait(0.01) == []


def test_a_connection_that_is_closed_is_made_anew(rung, bell) -> None:
    bell.wait(0.01)
    for row in rung.redis.client_list():
        if row["cmd"] == "blpop":
            rung.redis.client_kill_filter(_id=row["id"])
    rung.push("a")
    heard: list[bytes] = []
    wait_until(lambda: heard.extend(bell.wait(0.1)) or heard)


def test_without_redis_it_still_can_be_rung(own_redis_server, make_app) -> None:
    app = make_app(redis_url=own_redis_server.url)
    bell = ListBell.of(client_for_node(app.settings, 1), "bell")
    assert bell
    own_redis_server.stop()
    bell.ring()
    assert bell.wait(30) == []
    assert bell.wait(0.01) == []
    bell.close()


def test_redis_ends_a_wait_that_nobody_ends_and_it_is_asked_again(bell, app, monkeypatch) -> None:
    monkeypatch.setattr(bell_module, "LISTEN", 0.05)
    assert bell.wait(30) == []
    app.redis().rpush(bell.key, "x")
    assert bell.wait(30) == [b"x"]


def test_the_bell_of_a_node_that_has_died_is_forgotten(rung, bell) -> None:
    rung.push("a")
    assert 0 < rung.redis.ttl(bell.key) <= 60


def test_a_shard_that_is_released_rings_nobody(rung, bell) -> None:
    epoch = rung.owner("epoch")
    rung.caller.run(rung.shard.release("n", epoch, 1, "lease"))
    rung.push("a")
    assert not rung.redis.exists(bell.key)
