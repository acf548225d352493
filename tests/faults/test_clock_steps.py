"""Redis's clock is set back, or forwards: leases end, fresh jobs run, order and epochs hold, and what waits, waits."""

from __future__ import annotations

from collections import Counter

import pytest

from lowkiq.admin.beats.health import BEAT_TTL, LATE_AFTER
from lowkiq.admin.metrics import read_shards
from lowkiq.admin.past.history import take_turn
from lowkiq.queue.call import Call
from lowkiq.queue.senders import Senders
from lowkiq.queue.shard import Failure, Held, Owned, peek
from tests.web.node_health import tell_health

SECOND = 1_000_000
HOUR, YEAR = 3_600 * SECOND, 31_536_000 * SECOND
STEPS = [2 * SECOND, HOUR, YEAR]
TTL = 60.0

by_steps = pytest.mark.parametrize("by", STEPS)


@pytest.fixture
def clock(clock, monkeypatch):
    """A clock that begins late enough to be set back by a year. Deadlines of calls go by it, too."""
    clock.set(1_800_000_000 * SECOND)
    learn = Senders.learn

    def learn_of_it(senders):
        senders._command = lambda _: divmod(clock.now, SECOND)
        learn(senders)

    monkeypatch.setattr(Senders, "learn", learn_of_it)
    return clock


def seen_due(shard):
    """Seconds until the oldest job is due, as nodes and people are told."""
    (polled,) = shard.caller.run(peek([shard.shard]))
    (row,) = read_shards(shard.caller, [shard.shard])
    assert (polled, row.due_in) == (row.due_in, polled)
    return polled


@by_steps
def test_a_dead_nodes_lease_ends_within_its_ttl_after_the_clock_was_set_back(shard, clock, by):
    shard.lease("dead", ttl=TTL)
    clock.step(-by)
    assert shard.try_acquire("b") == Held("dead", TTL)
    clock.step(TTL * SECOND - 1)
    assert isinstance(shard.try_acquire("b"), Held)
    clock.step(1)
    assert isinstance(shard.try_acquire("b"), Owned)


def test_trying_again_and_again_does_not_lengthen_a_lease(shard, clock):
    shard.lease("dead", ttl=TTL)
    clock.step(-HOUR)
    for left in range(int(TTL), 0, -1):
        assert shard.try_acquire("b", ttl=3600.0) == Held("dead", left)
        clock.step(SECOND)
    assert isinstance(shard.try_acquire("b", ttl=3600.0), Owned)


def test_a_node_that_lives_loses_nothing_to_one_with_a_shorter_ttl(shard, clock):
    """It is the holder's ttl that counts."""
    shard.push("a")
    lease = shard.lease("a", ttl=TTL)
    lease.claim()
    clock.step(-HOUR)
    for _ in range(5):
        assert isinstance(shard.try_acquire("b", ttl=0.5), Held)
        clock.step(TTL / 3 * SECOND)
        assert isinstance(shard.try_acquire("b", ttl=0.5), Held)
        assert lease.renew(TTL)
    assert lease.ack("a").acked == 1


def test_a_lease_of_which_no_ttl_is_known_is_left_alone(shard, clock):
    """An older Lowkiq has written it."""
    shard.lease("a", ttl=TTL)
    shard.redis.hdel(shard.key("owner"), "ttl")
    clock.step(-HOUR)
    assert shard.try_acquire("b") == Held("a", TTL + 3600)


@pytest.mark.parametrize("by", [*STEPS, *(-by for by in STEPS)])
def test_epochs_rise_and_the_old_one_is_fenced(shard, clock, by):
    epochs = [int(shard.lease("a").epoch)]
    clock.step(by)
    epochs.append(int(shard.lease("b", dead=["a"]).epoch))
    clock.step(-2 * by)
    epochs.append(int(shard.lease("c", dead=["b"]).epoch))
    assert epochs == sorted(set(epochs))


def test_a_lease_that_a_step_forwards_has_ended_is_kept_if_nobody_took_it(shard, clock):
    shard.push("a")
    lease = shard.lease("a", ttl=TTL)
    lease.claim()
    clock.step(YEAR)
    assert lease.renew(TTL)
    assert shard.try_acquire("b") == Held("a", TTL)
    assert lease.ack("a").acked == 1


def test_a_lease_that_a_step_forwards_has_ended_and_another_took_is_lost_once(shard, clock):
    shard.push("a")
    lease = shard.lease("a", ttl=TTL)
    lease.claim()
    clock.step(YEAR)
    other = shard.lease("b")
    assert not lease.renew(TTL)
    assert [job.id for job in other.claim()] == ["a"]
    assert other.ack("a").acked == 1


# ── jobs ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@by_steps
@pytest.mark.parametrize("score", ["", 7.0])
def test_fresh_jobs_do_not_wait_for_the_old_time(shard, clock, by, score):
    lease = shard.lease()
    shard.push_all(*((f"before-{n}", b"p", score) for n in range(3)))
    clock.step(-by)
    assert seen_due(shard) <= 0
    shard.push_all(*((f"after-{n}", b"p", score) for n in range(3)))
    assert sorted(job.id for job in lease.claim()) == [f"{when}-{n}" for when in ("after", "before") for n in range(3)]


@by_steps
def test_the_payloads_of_an_id_keep_their_order(shard, clock, by):
    """Scores rise on, whatever the clock does."""
    lease = shard.lease()
    for n in range(3):
        shard.push_all(("a", b"%d" % n), ("lone", b"same"))
        clock.step(-by)
    shard.push("b", b"0")
    clock.step(-by)
    shard.push("b", b"1")
    payloads = {job.id: job.payloads for job in lease.claim()}
    assert payloads == {"a": [b"0", b"1", b"2"], "b": [b"0", b"1"], "lone": [b"same"]}


def test_moving_a_job_leaves_its_score(shard, clock):
    """A score that was left out, being the due time, is that of the push all the same."""
    shard.push("a", b"first")
    before = shard.queued()["a"].payloads
    lease = shard.lease()
    clock.step(-HOUR)
    lease.claim(limit=1)
    lease.release("claim")
    assert shard.queued()["a"].payloads == before
    assert shard.queued()["a"].perform_in == pytest.approx(clock.now / SECOND)


@by_steps
def test_a_retry_that_fails_again_waits_as_long_as_ever(shard, clock, by):
    """It is moved once at most, so that its tries are not used up in a moment."""
    shard.push_all(*((f"id-{n}", b"p") for n in range(20)))
    lease = shard.lease()
    clock.step(-by)
    tries = dict.fromkeys((f"id-{n}" for n in range(20)), 0)
    for _ in range(200):
        for job in lease.claim(limit=2):
            tries[job.id] += 1
            lease.settle(failed=[Failure(job.id, job.retry_count + 1, 100.0, "boom")])
        clock.step(0.1 * SECOND)
    assert set(tries.values()) == {1}, "20 seconds are no hundred"
    clock.step(100 * SECOND)
    assert len(lease.claim()) == 20


def test_of_very_many_jobs_some_are_moved_at_a_time_and_none_more_than_once_again(shard, clock):
    """One that fails meanwhile may be tried again before its time, once."""
    count = 2_000
    for first in range(0, count, 500):
        shard.push_all(*((f"id-{n}", b"p") for n in range(first, first + 500)))
        clock.step(SECOND)
    lease = shard.lease()
    clock.step(-HOUR)
    tries: Counter[str] = Counter()

    def fail_claimed(limit: int) -> None:
        jobs = lease.claim(limit=limit)
        tries.update(job.id for job in jobs)
        lease.settle(failed=[Failure(job.id, job.retry_count + 1, 30.0, "boom") for job in jobs])
        clock.step(0.01 * SECOND)

    rounds = 0
    while len(tries) < count:
        rounds += 1
        assert rounds < 100, "stuck"
        fail_claimed(100)
    for _ in range(50):
        fail_claimed(1_000)
    assert max(tries.values()) == 2


@by_steps
def test_delayed_jobs_run_at_their_time_by_the_new_clock(shard, clock, by):
    at = clock.now + 10 * SECOND
    shard.push("delayed", b"p", perform_in=at / SECOND)
    shard.push("fresh")
    lease = shard.lease()
    clock.step(-by)
    assert [job.id for job in lease.claim()] == ["fresh"]
    lease.ack("fresh")
    assert lease.claim() == []
    clock.set(at - 1)
    assert lease.claim() == []
    clock.set(at)
    assert [job.id for job in lease.claim()] == ["delayed"]


def test_after_a_wrong_time_has_gone_by_delayed_jobs_and_retries_wait_again(shard, clock):
    """A year forwards for a moment, and back: what is queued after that is judged by the right clock."""
    lease = shard.lease()
    clock.step(YEAR)
    shard.push("at the wrong time")
    clock.step(-YEAR)
    assert [job.id for job in lease.claim()] == ["at the wrong time"]
    lease.fail("at the wrong time", delay=15.0)
    shard.push("delayed", b"p", perform_in=clock.now / SECOND + 5)
    assert lease.claim() == []
    assert seen_due(shard) == pytest.approx(5)
    shard.push("fresh")
    assert [job.id for job in lease.claim()] == ["fresh"]
    lease.ack("fresh")
    clock.step(5 * SECOND)
    assert [job.id for job in lease.claim()] == ["delayed"]


def test_the_clock_may_be_set_back_again_before_it_has_made_up(shard, clock):
    lease = shard.lease()
    for n in range(4):
        shard.push(f"id-{n}")
        clock.step(-HOUR)
        if n % 2:
            assert len(lease.claim()) == 2
            lease.settle(rest="ack")
            clock.step(60 * SECOND)
    clock.step(YEAR)
    shard.push("late")
    assert shard.redis.hget(shard.key("meta"), "seen") is None, "all is made up for"
    clock.step(-HOUR)
    assert [job.id for job in lease.claim()] == ["late"]


@pytest.mark.parametrize("is_dead", [True, False])
def test_what_people_send_off_now_does_not_wait_for_the_old_time(shard, clock, is_dead):
    lease = shard.lease()
    shard.push("a", b"p", perform_in=clock.now / SECOND + 1_000)
    if is_dead:
        shard.actions.bury(["a"])
    clock.step(500 * SECOND)
    shard.actions.morgue_queue_up(["a"]) if is_dead else shard.actions.perform_all_jobs_now()
    clock.step(-HOUR)
    assert [job.id for job in lease.claim()] == ["a"]


def test_a_step_that_is_smaller_than_a_second_only_takes_its_time(shard, clock):
    """Clocks of two machines differ by so much, as after a failover."""
    lease = shard.lease()
    shard.push_all(("a", b"0"), ("b", b"0"))
    clock.step(-SECOND // 2)
    shard.push("a", b"1")
    assert {job.id: job.payloads for job in lease.claim()} == {"a": [b"0", b"1"], "b": [b"0"]}


# ── heartbeats and turns ────────────────────────────────────────────────────────────────────────────────────────────


def beat(shard, node):
    namespace = shard.app.settings.namespace
    shard.caller.run(Call("beat", [f"{namespace}:nodes"], [node, 0, 30, 200], list))


def test_a_dead_nodes_beat_of_a_time_to_come_ages_from_the_next_beat_of_another(shard, clock):
    for node in ("dead", "alive"):
        beat(shard, node)
    clock.step(-HOUR)
    beat(shard, "alive")
    told = dict(shard.redis.zrange(f"{shard.app.settings.namespace}:nodes", 0, -1, withscores=True))
    assert told == {b"dead": clock.now / SECOND, b"alive": clock.now / SECOND}


def test_a_node_that_redis_has_not_forgotten_in_time_is_not_told_of(app):
    """With its clock set back, Redis keeps a beat for longer."""
    redis, namespace = app.redis(), app.settings.namespace
    for name in ("old", "late"):
        tell_health(app, node=name)
    now = redis.time()[0]
    redis.zadd(f"{namespace}:nodes", {"old": now - BEAT_TTL - 1, "late": now - LATE_AFTER - 2})
    assert app.nodes().late == ["late"]


def test_a_turn_of_a_time_to_come_is_taken(app):
    key = f"{app.settings.namespace}:{{history}}"
    assert take_turn(app.caller, app.settings.namespace, "a")
    app.redis().pexpire(key, 3_600_000)  # as it is with the clock set back by an hour
    assert take_turn(app.caller, app.settings.namespace, "b")
    assert not take_turn(app.caller, app.settings.namespace, "c")
