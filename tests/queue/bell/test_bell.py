"""The list on which an idle thread waits for pushes: who rings, and what is heard."""

from __future__ import annotations

import threading

import pytest

from lowkiq.queue import bell as bell_module
from lowkiq.queue.bell import Heard, ListBell, Ring
from lowkiq.queue.call import Caller
from lowkiq.transport.connect import client_for_node
from tests.queue.bells import kill_listener, wait
from tests.queue.shard_driver import FUTURE
from tests.support import wait_until


def test_a_push_is_heard_with_its_shard(rung, bell) -> None:
    rung.push("a")
    assert wait(bell) == Heard(Ring(rung.prefix, 0.0, was_idle=False))


def test_a_push_for_later_tells_when(rung, bell) -> None:
    rung.push("a", perform_in=FUTURE)
    ring = wait(bell).ring
    assert ring and ring.due_in == pytest.approx(FUTURE - rung.now(), abs=30)


def test_a_push_ends_a_wait(rung, bell) -> None:
    heard: list[Heard] = []
    thread = threading.Thread(target=lambda: heard.append(wait(bell)))
    thread.start()
    wait_until(lambda: any(row["cmd"] == "blpop" for row in rung.redis.client_list()))
    rung.push("a")
    thread.join(60)
    assert heard[0].ring


def test_a_ring_within_the_node_ends_a_wait_and_the_next_still_hears_pushes(rung, bell) -> None:
    bell.ring()
    assert wait(bell) == Heard()
    rung.push("a")
    assert wait(bell).ring


def test_rings_are_never_waited_for(bell) -> None:
    for _ in range(100_000):
        bell.ring()
    assert wait(bell) == Heard()


def test_nobody_rings(bell) -> None:
    assert wait(bell, 0.01) == Heard()


def test_a_connection_that_is_closed_is_made_anew(rung, bell) -> None:
    wait(bell, 0.01)
    kill_listener(rung)
    rung.push("a")
    wait_until(lambda: wait(bell, 0.1).ring)


def test_without_redis_it_still_can_be_rung(own_redis_server, own_bell) -> None:
    own_redis_server.stop()
    own_bell.ring()
    assert wait(own_bell) == Heard()
    assert wait(own_bell, 0.01) == Heard()


def test_redis_ends_a_wait_that_nobody_ends_and_it_is_asked_again(bell, app, monkeypatch) -> None:
    monkeypatch.setattr(bell_module, "LISTEN", 0.05)
    assert wait(bell) == Heard()
    app.redis().rpush(bell.key, "x 1 0")
    assert wait(bell) == Heard(Ring(b"x", 1.0, was_idle=False))


def test_the_bells_of_a_node_speak_over_connections_that_they_share(app) -> None:
    """Each keeping one of its own would leave none to the rest of the node."""
    caller = Caller(client_for_node(app.settings, 7))
    assert caller.connections
    bells = [ListBell(caller.connections, f"{app.settings.namespace}:bell:n:{n}") for n in range(5)]
    for bell in bells:
        wait(bell, 0.01, is_idle=True)
    for bell in bells:
        assert bell.be_busy() == Heard()
    assert caller.command("PING")
    for bell in bells:
        bell.close()


def test_a_server_that_refuses_to_wait_is_asked_rarely_and_told_of_once(own_app, own_bell, caplog) -> None:
    """With rights that lack it, a thread would spin."""
    client = own_app.redis()
    client.execute_command("ACL", "SETUSER", "default", "-blpop")
    for _ in range(5):
        own_bell.ring()
        wait(own_bell, is_idle=True)
    assert client.info("commandstats")["cmdstat_blpop"]["rejected_calls"] == 1
    assert caplog.text.count("bell_refused") <= 1
    assert not own_bell.is_idle
    assert not client.exists(f"{own_bell.key}:idle")


def test_the_bell_of_a_node_that_has_died_is_forgotten(rung, bell) -> None:
    rung.push("a")
    assert 0 < rung.redis.ttl(bell.key) <= 60


def test_a_shard_that_is_released_rings_nobody(rung, bell) -> None:
    epoch = rung.owner("epoch")
    rung.caller.run(rung.shard.release("n", epoch, 1, "lease"))
    rung.push("a")
    assert not rung.redis.exists(bell.key)
