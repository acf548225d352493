"""When a bell says that its thread is idle, so that jobs may be handed over; what is told when rings may be lost."""

from __future__ import annotations

import pytest

from lowkiq.queue import bell as bell_module
from lowkiq.queue.bell import Heard, Ring
from tests.queue.bells import is_open, is_said_to_be_idle, kill_listener, wait
from tests.queue.shard_driver import FUTURE
from tests.support import wait_until


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


def test_one_is_closed_though_redis_is_away(own_redis_server, own_bell) -> None:
    wait(own_bell, 0.01, is_idle=True)
    own_redis_server.stop()
    own_bell.close()
    assert not own_bell.is_idle


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


def test_rings_that_are_lost_are_told_of_when_redis_is_back(own_redis_server, own_bell) -> None:
    wait(own_bell, 0.01, is_idle=True)
    own_redis_server.stop()
    assert wait(own_bell, 0.01, is_idle=True) == Heard()
    own_redis_server.start()
    assert wait(own_bell, is_idle=True) == Heard(is_unsure=True)


def test_after_a_while_it_is_idle_again(rung, bell, monkeypatch) -> None:
    monkeypatch.setattr(bell_module, "LISTEN", 0.05)
    wait(bell, 0.01, is_idle=True)
    kill_listener(rung)
    wait_until(lambda: wait(bell, 0.1, is_idle=True) == Heard() and bell.is_idle)


def test_a_full_memory_refuses_to_keep_that_it_is_idle(own_app, own_bell) -> None:
    own_app.redis().config_set("maxmemory", 1)
    assert wait(own_bell, 0.01, is_idle=True) == Heard()
    assert not own_bell.is_idle


def test_when_memory_is_full_it_can_be_busy(own_app, own_bell) -> None:
    wait(own_bell, 0.01, is_idle=True)
    own_app.redis().config_set("maxmemory", 1)
    assert own_bell.be_busy() == Heard()
    assert not own_app.redis().exists(f"{own_bell.key}:idle")


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
