"""Order: what becomes due at once runs in the order in which it came, and who would break an order is told so."""

from __future__ import annotations

import pytest

from lowkiq.queue.shard import Exhausted, Failure
from tests.queue.shard_driver import FUTURE, PAST, Lease

#: Neither sorted nor sorted backwards.
IDS = ("c", "a", "e", "b", "d")


def claimed(lease) -> list[str]:
    return [job.id for job in lease.claim()]


@pytest.fixture
def lease(shard):
    return shard.lease()


def test_scored_jobs_without_a_time_are_due_as_they_were_pushed(shard, lease):
    shard.push_all(*((id, b"p", float(-number)) for number, id in enumerate(IDS)))
    assert claimed(lease) == list(IDS)


def test_scored_and_unscored_jobs_keep_their_order_over_several_pushes(shard, lease):
    shard.push_all(("c", b"p", 9.0), ("a", b"p"))
    shard.push("e", b"p", 1.0)
    shard.push_all(("b", b"p"), ("d", b"p", 1.0))
    assert claimed(lease) == list(IDS)


def test_jobs_of_one_delay_are_due_as_they_were_pushed(shard):
    shard.push_all(*((id, b"p", "", "+60.000000") for id in IDS))
    due = {id: job.perform_in for id, job in shard.queued().items()}
    assert sorted(due, key=due.__getitem__) == list(IDS)
    assert len(set(due.values())) == len(IDS)


@pytest.mark.parametrize("delay", [0.0, 60.0])
def test_jobs_that_fail_in_one_claim_come_back_in_their_order(shard, lease, delay):
    shard.push_all(*((id, b"p") for id in IDS))
    lease.claim()
    lease.settle(failed=[Failure(id, 0, delay, "boom") for id in IDS])
    due = {id: job.perform_in for id, job in shard.queued().items()}
    assert sorted(due, key=due.__getitem__) == list(IDS)
    assert max(due.values()) - min(due.values()) < 1e-4


def test_what_the_exhausted_leave_comes_back_in_its_order(shard, lease):
    shard.push_all(*((id, payload, score, PAST) for id in IDS for payload, score in ((b"1", 1.0), (b"2", 2.0))))
    lease.claim()
    lease.settle(exhausted=[Exhausted(id, "boom") for id in IDS])
    assert claimed(lease) == list(IDS)


def test_revived_jobs_are_due_in_the_order_of_their_ids(shard, lease):
    shard.push_all(*((id, b"p", 1.0, FUTURE) for id in IDS))
    shard.actions.bury(IDS)
    shard.push("0")
    assert shard.actions.morgue_queue_up(IDS) == len(IDS)
    assert claimed(lease) == ["0", *IDS]


def test_jobs_performed_now_are_due_in_the_order_of_their_ids(shard, lease):
    shard.push_all(*((id, b"p", 1.0, FUTURE) for id in sorted(IDS)))
    shard.push("z")
    assert shard.actions.perform_now(IDS) == len(IDS)
    assert claimed(lease) == ["z", *IDS]


def test_all_jobs_performed_now_keep_the_order_of_their_times(shard, lease):
    shard.push_all(*((id, b"p", 1.0, FUTURE + number) for number, id in enumerate(IDS)))
    assert shard.actions.perform_all_jobs_now() == len(IDS)
    assert claimed(lease) == list(IDS)


def test_a_revived_job_tells_its_error_until_it_has_run(shard, lease):
    shard.push("a", b"p", 1.0, PAST)
    lease.claim()
    lease.exhaust("a", "card is stolen")
    shard.actions.morgue_queue_up(["a"])
    assert shard.queued()["a"].error == "card is stolen"
    lease.claim()
    assert shard.errors() == {"a": "card is stolen"}
    lease.ack("a")
    assert shard.errors() == {}


def test_a_fresh_job_buried_by_hand_leaves_the_error_of_its_id_in_the_morgue(shard, lease):
    shard.push("a", b"1", 1.0, PAST)
    lease.claim()
    lease.exhaust("a", "card is stolen")
    shard.push("a", b"2", 2.0, PAST)
    shard.actions.bury(["a"])
    assert shard.morgue()["a"].error == "card is stolen"


def test_a_job_buried_by_hand_comes_back_without_an_error(shard):
    shard.push("a")
    shard.actions.bury(["a"])
    shard.actions.morgue_queue_up(["a"])
    assert shard.errors() == {}


def die(shard, lease, *newer):
    """Job a dies of its payload 1, while it has these others, too."""
    shard.push_all(*(("a", payload, float(payload), PAST) for payload in (b"1", *newer)))
    lease.claim()
    lease.exhaust("a", "boom")


def test_a_dead_job_without_newer_payloads_is_behind_nothing(shard, lease):
    die(shard, lease)
    assert shard.actions.behind_newer(["a", "ghost"]) == []
    assert shard.actions.all_behind_newer() == 0


def test_a_dead_job_is_behind_newer_payloads_once_they_run(shard, lease):
    die(shard, lease, b"2")
    assert shard.actions.behind_newer(["a"]) == [], "they wait still, and merge"
    lease.claim()
    assert shard.actions.behind_newer(["a"]) == ["a"], "they run"
    lease.ack("a")
    assert shard.actions.behind_newer(["a"]) == ["a"], "they have run"
    assert shard.actions.all_behind_newer() == 1
    shard.actions.morgue_queue_up(["a"])
    assert shard.actions.behind_newer(["a"]) == []


def test_a_dead_job_is_behind_what_was_pushed_later_while_that_runs(shard, lease):
    die(shard, lease)
    shard.push("a", b"3", 3.0, PAST)
    lease.claim()
    assert shard.actions.behind_newer(["a"]) == ["a"]


def test_a_dead_job_is_not_behind_older_payloads(shard, lease):
    die(shard, lease)
    shard.push("a", b"0", 0.0, PAST)
    lease.claim()
    assert shard.actions.behind_newer(["a"]) == []


def test_a_lone_push_to_a_blocked_id_is_not_handed_over(rung):
    """Its owner waits for nothing, and has a claim open: the job goes behind the others of its id all the same."""
    rung.push("a", b"1", 1.0, PAST)
    lease = Lease(rung, "n", rung.owner("epoch"))
    lease.claim()
    lease.settle(exhausted=[Exhausted("a", "boom", "block")])
    assert lease.claim() == []
    rung.redis.set(f"{rung.owner('bell')}:idle", 1)
    rung.push("a", b"2")
    assert rung.claimed() == {} and set(rung.queued()["a"].payloads) == {b"1", b"2"}
    rung.push("b", b"1")
    assert rung.claimed().keys() | rung.queued().keys() == {"a", "b"}
