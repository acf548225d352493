"""Cancelling: what is queued of a job goes at once, and a run that is not done does not come back, however it ends."""

from __future__ import annotations

import pytest

from lowkiq.queue import keys
from lowkiq.queue.claims import Spoiled
from lowkiq.queue.shard import CANCELS, KEPT, Exhausted, Failure, renew
from lowkiq.shared_page import DeadNode
from tests.beside import HOT_DUE, run_beside
from tests.queue.shard_driver import FUTURE, PAST
from tests.support import wait_until


@pytest.fixture
def lease(shard):
    """Two jobs in claim 1: one of a payload, one of two; both have failed before, and are suspects."""
    shard.push_all(("one", b"1", 1.0, PAST), ("several", b"1", 1.0, PAST), ("several", b"2", 2.0))
    lease = shard.lease()
    lease.claim()
    lease.settle(failed=[Failure(id, 0, -FUTURE, "boom") for id in ("one", "several")])
    shard.redis.hset(shard.key("crashes"), mapping={"one": 1, "several": 1})
    lease.claim()
    return lease


#: Each ends the claim, but for "keep".
ENDS = {
    "failed": lambda lease: lease.settle(failed=[Failure(id, 1, 0, "e") for id in ("one", "several")]),
    "exhausted": lambda lease: lease.settle(exhausted=[Exhausted(id, "e") for id in ("one", "several")]),
    "released": lambda lease: lease.settle(released=["one", "several"]),
    "spoiled": lambda lease: lease.settle(
        spoiled=[Spoiled(id, b"1", "e") for id in ("one", "several")], released=["one", "several"]
    ),
    "the rest released": lambda lease: lease.settle(rest="release"),
    "the claim released": lambda lease: lease.release("claim"),
    "the lease released": lambda lease: lease.release("lease"),
    "abandoned": lambda lease: (lease.abandon(), lease.driver.lease("b", dead=["a"])),
    "its node died": lambda lease: lease.driver.lease("b", dead=["a"]),
    "its node died once too often": lambda lease: (
        lease.isolate("one"),
        lease.driver.try_acquire("b", max_crashes=1, dead=[DeadNode("a")]),
    ),
    "the same node again": lambda lease: lease.driver.lease("a"),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=list(ENDS))
def test_a_cancelled_run_does_not_come_back(shard, lease, end):
    assert shard.actions.cancel(["one", "several"]) == 2
    failed = shard.meta("failed")
    end(lease)
    assert shard.names() == {"meta", "owner"}
    assert (shard.meta("processed"), shard.meta("failed")) == (0, failed)


@pytest.mark.parametrize("end", ENDS.values(), ids=list(ENDS))
def test_what_is_pushed_after_it_runs_at_its_own_time(shard, lease, end):
    shard.actions.cancel(["one", "several"])
    shard.push_all(("one", b"new", 1.0, FUTURE), ("several", b"1", 1.0, FUTURE))
    end(lease)
    assert {id: (job.payloads, job.perform_in, job.retry_count) for id, job in shard.queued().items()} == {
        "one": ({b"new": 1.0}, FUTURE, -1),
        "several": ({b"1": 1.0}, FUTURE, -1),
    }
    assert not shard.morgue() and not shard.crashes() and not shard.errors()


@pytest.mark.parametrize("rest", ["ack", "keep"])
def test_a_run_that_is_done_is_done(shard, lease, rest):
    shard.actions.cancel(["one", "several"])
    lease.settle(acked=["one", "several"] if rest == "keep" else [], rest=rest)
    assert shard.names() == {"meta", "owner"}
    assert shard.meta("processed") == 2


def test_others_of_the_claim_go_on(shard, lease):
    shard.actions.cancel(["several"])
    lease.settle(rest="release")
    assert [job.id for job in lease.claim()] == ["one"]


def test_what_is_queued_goes_at_once(shard):
    shard.push_all(("now", b"x"), ("later", b"x", 1.0, FUTURE), ("several", b"x"), ("several", b"y"))
    assert shard.actions.cancel(["now", "later", "several", "several", "unknown"]) == 3
    assert shard.names() == {"meta"}
    assert shard.actions.cancel(["now"]) == 0


def test_what_failed_goes_with_its_error(shard, lease):
    lease.settle(failed=[Failure("one", 1, 60, "e")], rest="ack")
    assert shard.actions.cancel(["one"]) == 1
    assert shard.names() == {"meta", "owner"}


def test_what_waits_behind_its_own_run_goes_too_and_is_counted_once(shard):
    lease = run_beside(shard)
    assert shard.actions.cancel(["hot"]) == 1
    assert not shard.queued()
    shard.push("hot", b"third", 3.0, HOT_DUE)
    lease.claim_beside()
    assert shard.queued()["hot"].waits
    lease.release("claim", number=1)
    assert shard.queued()["hot"].payloads == {b"third": 3.0}
    assert not shard.queued()["hot"].waits
    assert [job.payloads for job in lease.claim_beside()] == [[b"third"]]


def test_the_morgue_is_left_alone(shard):
    shard.push("dead")
    shard.actions.bury(["dead"])
    assert shard.actions.cancel(["dead"]) == 0
    assert set(shard.morgue()) == {"dead"}


def test_repeating_it_changes_nothing(shard, lease):
    shard.actions.cancel(["one"])
    before = shard.dump()
    assert shard.actions.cancel(["one"]) == 1
    assert shard.dump() == before


def test_the_owner_is_told_which_jobs_of_which_claim(shard):
    lease = run_beside(shard)
    assert lease.cancels(1) == lease.cancels(2) == []
    shard.actions.cancel(["hot"])
    assert (lease.cancels(1), lease.cancels(2)) == (["hot"], [])
    shard.redis.hset(shard.key("cancels"), mapping={"slow": f"{int(lease.epoch) - 1} 2", "x": b"\xff", "y": ""})
    assert (lease.cancels(1), lease.cancels(2)) == (["hot"], [])


def test_a_renewal_tells_of_it(shard, lease):
    call = renew([shard.shard], "a", [lease.epoch], 60.0)
    assert shard.caller.run(call) == [KEPT]
    shard.actions.cancel(["one"])
    assert shard.caller.run(call) == [KEPT + CANCELS]
    lease.settle(rest="ack")
    assert shard.caller.run(call) == [KEPT]


def test_its_node_is_rung_if_it_runs(shard, lease):
    with shard.redis.pubsub() as pubsub:
        pubsub.subscribe(keys.doorbell(shard.app.settings.namespace, "a"))
        wait_until(lambda: pubsub.get_message(timeout=1))
        shard.push("queued")
        shard.actions.cancel(["queued"])
        shard.actions.cancel(["one", "several"])
        message = wait_until(lambda: pubsub.get_message(timeout=1))
    assert message["data"] == b"cancel " + shard.prefix


def test_a_mark_that_was_left_behind_touches_no_later_run(shard):
    """As by a node of an older Lowkiq, which has ended that run and knows of no mark."""
    shard.push("a")
    lease = shard.lease()
    lease.claim()
    lease.ack("a")
    shard.redis.hset(shard.key("cancels"), "a", f"{lease.epoch} 1")
    shard.push("a", b"later")
    lease.claim()
    assert lease.cancels(2) == []
    lease.release("claim")
    assert shard.queued()["a"].payloads.keys() == {b"later"}
    shard.redis.hset(shard.key("cancels"), "a", f"{lease.epoch} 1")
    shard.lease("b", dead=["a"])
    assert "cancels" not in shard.names()


def test_ids_are_checked_before_anything_is_done(shard):
    shard.push("a")
    with pytest.raises(ValueError, match="id must not be empty"):
        shard.actions.cancel(["a", ""])
    assert set(shard.queued()) == {"a"}


def test_nothing_of_a_queue_is_nothing_cancelled(shard):
    assert shard.actions.cancel(["a"]) == 0
    assert shard.names() == set()


def test_it_works_when_memory_is_full(own_app):
    from tests.queue.shard_driver import ShardDriver

    shard = ShardDriver(own_app)
    shard.push("a")
    lease = shard.lease()
    lease.claim()
    shard.push_all(("a", b"y"), ("b", b"x"))
    shard.redis.config_set("maxmemory", 1)
    assert shard.actions.cancel(["a", "b"]) == 2
    lease.release("claim")
    assert shard.names() == {"meta", "owner"}
