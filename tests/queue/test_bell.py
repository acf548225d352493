"""The list on which an idle thread waits for pushes."""

from __future__ import annotations

import threading

import pytest

from lowkiq.queue import bell as bell_module
from lowkiq.queue.bell import Heard, ListBell, Ring
from lowkiq.queue.call import Caller
from lowkiq.transport.connect import client_for_node
from tests.queue.shard_driver import FUTURE
from tests.support import wait_until


def bell_of(app, key: str = "bell") -> ListBell:
    """Over connections of its own."""
    connections = Caller(client_for_node(app.settings, 2)).connections
    assert connections
    return ListBell(connections, key)


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


def wait(bell: ListBell, seconds: float = 30, *, is_idle: bool = False) -> Heard:
    return bell.wait(seconds, is_idle=is_idle)


def is_open(rung) -> None:
    """Its owner has looked, and found nothing."""
    epoch = rung.owner("epoch")
    rung.caller.run(rung.shard.claim("n", epoch, int(rung.owner("claim") or 0) + 1, 10, 10, bytes))


def is_said_to_be_idle(rung, bell) -> bool:
    return bool(rung.redis.exists(f"{bell.key}:idle"))


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
    thread.join(20)
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


def test_without_redis_it_still_can_be_rung(own_redis_server, make_app) -> None:
    app = make_app(redis_url=own_redis_server.url)
    bell = bell_of(app)
    own_redis_server.stop()
    bell.ring()
    assert wait(bell) == Heard()
    assert wait(bell, 0.01) == Heard()
    bell.close()


def test_redis_ends_a_wait_that_nobody_ends_and_it_is_asked_again(bell, app, monkeypatch) -> None:
    monkeypatch.setattr(bell_module, "LISTEN", 0.05)
    assert wait(bell) == Heard()
    app.redis().rpush(bell.key, "x 1 0")
    assert wait(bell) == Heard(Ring(b"x", 1.0, was_idle=False))


def test_a_job_is_handed_over_while_it_is_idle(rung, bell) -> None:
    is_open(rung)
    wait(bell, 0.01, is_idle=True)
    assert bell.is_idle
    rung.push("a")
    ring = wait(bell, is_idle=True).ring
    assert ring and ring.handed
    assert (ring.handed.epoch, ring.handed.number) == (rung.owner("epoch"), 1)
    assert not bell.is_idle


def test_nothing_is_handed_over_to_one_that_does_not_say_so(rung, bell) -> None:
    is_open(rung)
    wait(bell, 0.01)
    assert not bell.is_idle
    rung.push("a")
    assert wait(bell) == Heard(Ring(rung.prefix, 0.0, was_idle=False))


def test_it_is_idle_until_it_is_rung(rung, bell) -> None:
    wait(bell, 0.01, is_idle=True)
    assert is_said_to_be_idle(rung, bell)
    rung.push("a", perform_in=FUTURE)
    assert not is_said_to_be_idle(rung, bell)
    assert wait(bell, is_idle=True).ring
    assert not bell.is_idle
    wait(bell, 0.01, is_idle=True)
    assert is_said_to_be_idle(rung, bell)


def test_to_be_called_away_does_not_end_it(rung, bell) -> None:
    for _ in range(3):
        bell.ring()
        assert wait(bell, is_idle=True) == Heard()
    assert bell.is_idle
    assert is_said_to_be_idle(rung, bell)


def test_who_is_busy_gets_nothing_handed_over(rung, bell) -> None:
    is_open(rung)
    assert bell.be_busy() == Heard(), "it was"
    wait(bell, 0.01, is_idle=True)
    assert bell.be_busy() == Heard()
    assert not bell.is_idle
    rung.push("a")
    assert wait(bell) == Heard(Ring(rung.prefix, 0.0, was_idle=False))


@pytest.mark.parametrize(("listen", "seconds"), [(5, 0.01), (0.05, 30)], ids=["while it listens", "between two waits"])
def test_a_job_that_comes_before_it_is_busy_is_heard(rung, bell, monkeypatch, listen, seconds) -> None:
    """Between two waits nobody blocks on the list, and it still is said to be idle."""
    monkeypatch.setattr(bell_module, "LISTEN", listen)
    is_open(rung)
    wait(bell, seconds, is_idle=True)
    assert bell.is_idle
    rung.push("a")
    ring = bell.be_busy().ring
    assert ring and ring.handed
    assert not bell.is_idle
    assert wait(bell, 0.01, is_idle=True) == Heard()


def test_a_ring_that_comes_as_redis_ends_a_wait_is_not_taken_back(rung, bell, monkeypatch) -> None:
    monkeypatch.setattr(bell_module, "LISTEN", 0.05)
    is_open(rung)
    wait(bell, is_idle=True)
    rung.push("a")
    ring = wait(bell, is_idle=True).ring
    assert ring and ring.handed
    assert not is_said_to_be_idle(rung, bell), "it would have been handed the next one too"


def test_that_it_is_idle_is_forgotten_when_it_dies_and_lasts_while_it_lives(rung, bell, monkeypatch) -> None:
    monkeypatch.setattr(bell_module, "LISTEN", 1)
    wait(bell, 0.01, is_idle=True)
    assert 0 < rung.redis.ttl(f"{bell.key}:idle") <= 6
    rung.redis.expire(f"{bell.key}:idle", 1)
    assert wait(bell, is_idle=True) == Heard(), "Redis has ended the wait"
    rung.redis.set(f"{bell.key}:idle", 1, ex=1)
    wait(bell, 0.01, is_idle=True)
    assert rung.redis.ttl(f"{bell.key}:idle") > 1


def test_one_that_is_closed_is_not_idle(rung, bell) -> None:
    wait(bell, 0.01, is_idle=True)
    bell.close()
    assert not is_said_to_be_idle(rung, bell)


def test_one_is_closed_though_redis_is_away(own_redis_server, make_app) -> None:
    bell = bell_of(make_app(redis_url=own_redis_server.url))
    wait(bell, 0.01, is_idle=True)
    own_redis_server.stop()
    bell.close()
    assert not bell.is_idle


def test_who_was_idle_is_told_when_rings_may_be_lost(rung, bell) -> None:
    is_open(rung)
    wait(bell, 0.01, is_idle=True)
    kill_listener(rung)
    assert wait(bell, is_idle=True) == Heard(is_unsure=True)
    assert not is_said_to_be_idle(rung, bell)
    assert wait(bell, 0.01, is_idle=True) == Heard()
    assert not bell.is_idle, "Redis may not have noticed, and tell the connection that is gone"


def test_when_rings_may_be_lost_is_told_by_who_wants_to_be_busy_too(rung, bell) -> None:
    is_open(rung)
    wait(bell, 0.01, is_idle=True)
    kill_listener(rung)
    rung.push("a")
    assert bell.be_busy() == Heard(is_unsure=True)


@pytest.mark.parametrize("message", [b"", b"x", b"x y z", b"x 0 1 2 3 4 5", b"x 0 1 2 3 4 z a", b"\xff" * 100])
def test_what_is_no_ring_is_as_if_it_were_lost(rung, bell, message) -> None:
    """Another version's may be one that hands a job over."""
    wait(bell, 0.01, is_idle=True)
    rung.redis.rpush(bell.key, message)
    assert wait(bell, is_idle=True) == Heard(is_unsure=True)


def test_that_it_was_idle_may_have_been_forgotten(rung, bell, monkeypatch) -> None:
    """A node that was frozen for long: nobody can tell whether somebody has rung."""
    monkeypatch.setattr(bell_module, "GRACE", -4.999)
    wait(bell, 0.01, is_idle=True)
    wait_until(lambda: not is_said_to_be_idle(rung, bell))
    assert bell.be_busy() == Heard(is_unsure=True)


def test_rings_that_are_lost_are_told_of_when_redis_is_back(own_redis_server, make_app) -> None:
    app = make_app(redis_url=own_redis_server.url)
    bell = bell_of(app)
    wait(bell, 0.01, is_idle=True)
    own_redis_server.stop()
    assert wait(bell, 0.01, is_idle=True) == Heard()
    own_redis_server.start()
    assert wait(bell, is_idle=True) == Heard(is_unsure=True)
    bell.close()


def test_after_a_while_it_is_idle_again(rung, bell, monkeypatch) -> None:
    monkeypatch.setattr(bell_module, "LISTEN", 0.05)
    wait(bell, 0.01, is_idle=True)
    kill_listener(rung)
    wait_until(lambda: wait(bell, 0.1, is_idle=True) == Heard() and bell.is_idle)


def test_a_full_memory_refuses_to_keep_that_it_is_idle(own_redis_server, make_app) -> None:
    app = make_app(redis_url=own_redis_server.url)
    bell = bell_of(app)
    app.redis().config_set("maxmemory", 1)
    assert wait(bell, 0.01, is_idle=True) == Heard()
    assert not bell.is_idle
    bell.close()


def test_when_memory_is_full_it_can_be_busy(own_redis_server, make_app) -> None:
    app = make_app(redis_url=own_redis_server.url)
    bell = bell_of(app)
    wait(bell, 0.01, is_idle=True)
    app.redis().config_set("maxmemory", 1)
    assert bell.be_busy() == Heard()
    assert not app.redis().exists(f"{bell.key}:idle")
    bell.close()


def test_a_ring_from_before_it_was_idle_leaves_it_so(rung, bell) -> None:
    """Its thread was busy with another shard; so it is not idle any more only when it has said so."""
    rung.push("a", perform_in=FUTURE)
    assert wait(bell, is_idle=True).ring
    assert bell.is_idle
    assert is_said_to_be_idle(rung, bell)
    assert bell.be_busy() == Heard()
    assert not is_said_to_be_idle(rung, bell)


def test_a_ring_that_came_while_it_was_busy_is_heard_before_it_says_that_it_is_idle(rung, bell) -> None:
    wait(bell, 0.01, is_idle=True)
    bell.be_busy()
    rung.push("a", perform_in=FUTURE)
    assert wait(bell, is_idle=True).ring
    assert not bell.is_idle
    assert not is_said_to_be_idle(rung, bell)


def test_after_it_was_busy_it_is_idle_again(rung, bell) -> None:
    is_open(rung)
    for _ in range(3):
        wait(bell, 0.01, is_idle=True)
        bell.be_busy()
    wait(bell, 0.01, is_idle=True)
    rung.push("a")
    ring = wait(bell, is_idle=True).ring
    assert ring and ring.handed


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


def test_a_server_that_refuses_to_wait_is_asked_rarely_and_told_of_once(own_redis_server, make_app, caplog) -> None:
    """With rights that lack it, a thread would spin."""
    app = make_app(redis_url=own_redis_server.url)
    client = app.redis()
    client.execute_command("ACL", "SETUSER", "default", "-blpop")
    bell = bell_of(app)
    for _ in range(5):
        bell.ring()
        wait(bell, is_idle=True)
    assert client.info("commandstats")["cmdstat_blpop"]["rejected_calls"] == 1
    assert caplog.text.count("bell_refused") <= 1
    assert not bell.is_idle
    assert not client.exists(f"{bell.key}:idle")
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
