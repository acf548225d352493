"""The doorbell: who is rung, when, and what the owner is told."""

from __future__ import annotations

import itertools

import pytest

from lowkiq.queue import keys
from tests.queue.shard_driver import FUTURE, PAST
from tests.support import wait_until

_marks = itertools.count()


@pytest.fixture
def bells(app, shard):
    """Gives what node "a" has been rung with since the last time."""
    client = app.redis()
    channel = keys.doorbell(app.settings.namespace, "a")
    with client.pubsub() as pubsub:
        pubsub.subscribe(channel)
        wait_until(lambda: pubsub.get_message(timeout=1))

        def heard() -> list[float]:
            mark = b"mark %d" % next(_marks)
            client.publish(channel, mark)
            rung = []
            while (data := wait_until(lambda: pubsub.get_message(timeout=1))["data"]) != mark:
                prefix, due_in = data.rsplit(b" ", 1)
                assert prefix == shard.prefix
                rung.append(float(due_in))
            return rung

        yield heard


@pytest.fixture
def lease(shard):
    """An idle owner: it has looked, and found nothing."""
    lease = shard.lease()
    lease.claim()
    return lease


def test_an_idle_owner_is_rung_at_once(shard, lease, bells):
    shard.push("a")
    assert bells() == [0.0]


def test_it_is_rung_once_until_it_has_looked(shard, lease, bells):
    shard.push("a")
    shard.push("b")
    assert bells() == [0.0]
    lease.claim()
    lease.settle(rest="ack")
    shard.push("c")
    assert bells() == [0.0]


@pytest.mark.parametrize("perform_ins", [[FUTURE, PAST, ""], ["", PAST, FUTURE], [PAST, FUTURE, FUTURE]])
def test_a_push_of_several_jobs_rings_once_for_the_earliest(shard, lease, bells, perform_ins):
    shard.push_all(*((f"id-{n}", b"x", 1.0, perform_in) for n, perform_in in enumerate(perform_ins)))
    assert bells() == [0.0]


def test_a_busy_owner_is_not_rung(shard, lease, bells):
    shard.push("a")
    bells()
    lease.claim()
    shard.push("b")
    assert bells() == []


def test_a_merge_does_not_ring(shard, lease, bells):
    shard.push("a", perform_in=FUTURE)
    bells()
    shard.push("a", b"y", 1.0, PAST)
    assert bells() == []


def test_a_job_due_later_is_announced_with_its_time(shard, lease, bells):
    shard.push("a", perform_in=FUTURE)
    (due_in,) = bells()
    assert due_in == pytest.approx(FUTURE - shard.now(), abs=5)


def test_a_job_due_later_than_what_is_known_is_not_announced(shard, lease, bells):
    shard.push("a", perform_in=FUTURE)
    bells()
    shard.push("b", perform_in=FUTURE + 1)
    shard.push("c", perform_in=FUTURE)
    assert bells() == []


def test_a_job_due_earlier_than_what_is_known_is_announced(shard, lease, bells):
    shard.push("a", perform_in=FUTURE)
    shard.push("b", perform_in=FUTURE - 1000)
    shard.push("c")
    first, second, third = bells()
    assert first > second > third == 0.0


@pytest.mark.parametrize("how", ["acquire", "claim", "settle", "release"])
def test_who_is_told_of_an_empty_queue_is_rung(shard, bells, how):
    lease = shard.lease()
    shard.redis.hdel(shard.key("owner"), "waiting")
    match how:
        case "acquire":
            shard.lease()
        case "claim":
            lease.claim()
        case "settle":
            lease.settle()
        case "release":
            lease.release("claim")
    shard.push("a")
    assert bells() == [0.0]


@pytest.mark.parametrize("how", ["acquire", "claim", "settle", "release"])
def test_who_is_told_of_a_later_job_is_rung_for_an_earlier_one(shard, bells, how):
    shard.push("later", perform_in=FUTURE)
    test_who_is_told_of_an_empty_queue_is_rung(shard, bells, how)


def test_who_is_told_of_a_due_job_is_not_rung(shard, bells):
    shard.push("a")
    shard.lease()
    shard.push("b")
    assert bells() == []


def test_a_claim_that_leaves_due_jobs_does_not_ring_for_more(shard, lease, bells):
    shard.push("a", perform_in=PAST)
    shard.push("b", perform_in=PAST)
    bells()
    lease.claim(limit=1)
    lease.settle(rest="ack")
    shard.push("c")
    assert bells() == []


def test_a_failed_job_is_known_by_its_retry(shard, lease, bells):
    shard.push("a")
    lease.claim()
    lease.fail("a", delay=1000)
    bells()
    shard.push("b", perform_in=FUTURE)
    assert bells() == []
    shard.push("c")
    assert bells() == [0.0]


@pytest.mark.parametrize("action", ["revive", "perform_now", "perform_all"])
def test_an_operator_who_makes_jobs_due_rings(shard, bells, action):
    shard.push("a", perform_in=FUTURE)
    if action == "revive":
        shard.actions.bury(["a"])
    shard.lease().claim()
    match action:
        case "revive":
            shard.actions.morgue_queue_up(["a"])
        case "perform_now":
            shard.actions.perform_now(["a"])
        case "perform_all":
            shard.actions.perform_all_jobs_now()
    assert bells() == [0.0]


def test_actions_that_move_nothing_do_not_ring(shard, lease, bells):
    shard.actions.perform_now(["ghost"])
    shard.actions.morgue_queue_up(["ghost"])
    shard.actions.bury(["ghost"])
    assert bells() == []


def test_a_released_shard_rings_nobody(shard, lease, bells):
    lease.release("lease")
    shard.push("a")
    assert bells() == []


def test_the_bell_is_that_of_the_new_owner(shard, lease, bells):
    shard.lease("b", dead=["a"])
    shard.push("a")
    assert bells() == []
    shard.lease("a", dead=["b"]).ack("a")
    assert shard.owner("waiting") is None
