"""The list on which an idle thread waits for pushes."""

from __future__ import annotations

import threading

import pytest
from redis.exceptions import RedisError

from lowkiq.store import bell as bell_module
from lowkiq.store.bell import Heard, ListBell
from lowkiq.store.call import Caller
from lowkiq.store.connect import client_for_node
from tests.scripts.shard_driver import FUTURE
from tests.support import wait_until


def bell_of(app, key: str = "bell") -> ListBell:
    """Over connections of its own."""
    line = Caller(client_for_node(app.settings, 2)).line
    assert line
    return ListBell(line, key)


@pytest.fixture
def bell(app):
    bell = bell_of(app, f"{app.settings.namespace}:bell:n:0")
    yield bell
    bell.close()


@pytest.fixture
def rung(shard, bell):
    """A shard whose owner is idle, and hears of it by that bell."""
    shard.caller.run(shard.shard.acquire("n", 60, 3, bell=bell.key))
    return shard


def nothing() -> None:
    """What a thread asks that has nothing to ask."""


def greet() -> tuple[str, ...]:
    """What a thread asks, of which the test can see when it was done."""
    return ("ECHO", "hello")


def test_a_push_is_heard_with_its_shard(rung, bell) -> None:
    rung.push("a")
    assert bell.wait(30, nothing).messages == (rung.prefix + b" 0.000000",)


def test_a_push_for_later_tells_when(rung, bell) -> None:
    rung.push("a", perform_in=FUTURE)
    (message,) = bell.wait(30, nothing).messages
    assert float(message.split()[1]) == pytest.approx(FUTURE - rung.now(), abs=30)


def test_a_push_ends_a_wait(rung, bell) -> None:
    heard: list[bytes] = []
    thread = threading.Thread(target=lambda: heard.extend(bell.wait(30, nothing).messages))
    thread.start()
    wait_until(lambda: any(row["cmd"] == "blpop" for row in rung.redis.client_list()))
    rung.push("a")
    thread.join(20)
    assert heard


def test_a_ring_within_the_node_ends_a_wait_and_the_next_still_hears_pushes(rung, bell) -> None:
    bell.ring()
    assert bell.wait(30, nothing) == Heard()
    rung.push("a")
    assert bell.wait(30, nothing).messages


def test_rings_are_never_waited_for(bell) -> None:
    for _ in range(100_000):
        bell.ring()
    assert bell.wait(30, nothing) == Heard()


def test_nobody_rings(bell) -> None:
    assert bell.wait(0.01, nothing) == Heard()


def test_a_connection_that_is_closed_is_made_anew(rung, bell) -> None:
    bell.wait(0.01, nothing)
    kill_listener(rung)
    rung.push("a")
    heard: list[bytes] = []
    wait_until(lambda: heard.extend(bell.wait(0.1, nothing).messages) or heard)


def test_without_redis_it_still_can_be_rung(own_redis_server, make_app) -> None:
    app = make_app(redis_url=own_redis_server.url)
    bell = bell_of(app)
    own_redis_server.stop()
    bell.ring()
    assert bell.wait(30, nothing) == Heard()
    assert bell.wait(0.01, nothing) == Heard()
    bell.close()


def test_redis_ends_a_wait_that_nobody_ends_and_it_is_asked_again(bell, app, monkeypatch) -> None:
    monkeypatch.setattr(bell_module, "LISTEN", 0.05)
    assert bell.wait(30, nothing) == Heard()
    app.redis().rpush(bell.key, "x")
    assert bell.wait(30, nothing) == Heard((b"x",))


def test_what_is_asked_is_answered_when_a_push_rings_and_not_before(rung, bell) -> None:
    assert bell.wait(0.05, greet) == Heard()
    rung.push("a")
    assert bell.wait(30, nothing) == Heard((rung.prefix + b" 0.000000",), (b"hello",))


def test_what_is_asked_waits_while_the_thread_is_called_away_and_is_asked_once(rung, bell) -> None:
    asked = []
    for _ in range(3):
        bell.ring()
        assert bell.wait(30, lambda: asked.append(1) or greet()) == Heard()
    rung.push("a")
    assert bell.wait(30, nothing).answers == (b"hello",)
    assert len(asked) == 1


def test_what_is_called_back_is_over(rung, bell) -> None:
    assert bell.call_back() == Heard(), "nothing was asked"
    bell.wait(0.01, greet)
    assert bell.call_back() == Heard((b"",), (b"hello",))
    assert bell.call_back() == Heard(), "it is over"
    rung.push("a")
    assert bell.wait(30, nothing) == Heard((rung.prefix + b" 0.000000",))


def test_a_push_that_comes_before_the_call_back_is_heard(rung, bell) -> None:
    bell.wait(0.01, greet)
    rung.push("a")
    assert bell.call_back() == Heard((rung.prefix + b" 0.000000",), (b"hello",))
    assert bell.wait(30, nothing) == Heard((b"",)), "what called back rings later, to nobody's harm"


def test_who_has_asked_is_told_when_the_answer_is_lost(rung, bell) -> None:
    bell.wait(0.01, greet)
    kill_listener(rung)
    heard = bell.wait(30, nothing)
    assert heard.messages == ()
    assert isinstance(*heard.answers, RedisError)
    bell.wait(0.01, greet)
    kill_listener(rung)
    assert isinstance(*bell.call_back().answers, RedisError)


def test_a_call_back_that_a_full_memory_refuses_ends_by_giving_up_the_connection(own_redis_server, make_app) -> None:
    app = make_app(redis_url=own_redis_server.url)
    bell = bell_of(app)
    bell.wait(0.01, greet)
    app.redis().config_set("maxmemory", 1)
    (answer,) = bell.call_back().answers
    assert "maxmemory" in str(answer)
    wait_until(lambda: not any(row["cmd"] == "blpop" for row in app.redis().client_list()))
    bell.close()


def test_the_bells_of_a_node_call_back_over_connections_that_they_share(app) -> None:
    """Each keeping one of its own would leave none to the rest of the node."""
    caller = Caller(client_for_node(app.settings, 7))
    assert caller.line
    bells = [ListBell(caller.line, f"{app.settings.namespace}:bell:n:{n}") for n in range(5)]
    for bell in bells:
        bell.wait(0.01, greet)
    for bell in bells:
        assert bell.call_back().answers == (b"hello",)
    assert caller.command("PING")
    for bell in bells:
        bell.close()


def test_a_server_that_refuses_to_wait_is_asked_rarely_and_told_of_once(own_redis_server, make_app, caplog) -> None:
    """With rights that lack it, a thread would spin."""
    app = make_app(redis_url=own_redis_server.url)
    app.redis().execute_command("ACL", "SETUSER", "default", "-blpop")
    bell = bell_of(app)
    asked = []
    for _ in range(5):
        bell.ring()
        bell.wait(30, lambda: asked.append(1) or greet())
    assert len(asked) == 1
    assert caplog.text.count("bell_refused") <= 1
    bell.close()


def kill_listener(rung) -> None:
    for row in rung.redis.client_list():
        if row["cmd"] == "blpop":
            rung.redis.client_kill_filter(_id=row["id"])


def test_the_bell_of_a_node_that_has_died_is_forgotten(rung, bell) -> None:
    rung.push("a")
    assert 0 < rung.redis.ttl(bell.key) <= 60


def test_a_shard_that_is_released_rings_nobody(rung, bell) -> None:
    epoch = rung.owner("epoch")
    rung.caller.run(rung.shard.release("n", epoch, 1, "lease"))
    rung.push("a")
    assert not rung.redis.exists(bell.key)
