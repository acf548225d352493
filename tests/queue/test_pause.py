"""A paused shard: nothing of it is claimed, pushes go on, and its owner says when nothing of it starts any more."""

from __future__ import annotations

import threading

import pytest

from lowkiq import clock
from lowkiq.admin.metrics import read_shards
from lowkiq.admin.past.incidents import read_incidents
from lowkiq.admin.pauses import Pause
from lowkiq.errors import Fenced, Paused, ShardsCountMismatch
from lowkiq.queue import keys
from lowkiq.queue.call import Call
from lowkiq.queue.shard import KEPT, PAUSED, Outcome, renew
from tests.queue.shard_driver import FUTURE, ShardDriver
from tests.support import wait_until


def rest(shard, lease, number=None, in_hand=()):
    return shard.caller.run(shard.shard.rest(lease.node, lease.epoch, number or lease.number, in_hand))


def test_nothing_is_claimed_until_it_is_resumed(shard):
    shard.push_all(("a",), ("b",))
    lease = shard.lease()
    assert shard.actions.pause("stock-taking", who="ann", wait=0).unconfirmed == {"a": [0]}
    with pytest.raises(Paused):
        lease.claim()
    shard.push("c")
    assert shard.queued().keys() == {"a", "b", "c"}
    assert shard.actions.resume(who="ann") == 1
    assert [job.id for job in lease.claim()] == ["a", "b", "c"]


def test_who_and_why_are_kept_and_noted(shard):
    before = shard.now()
    shard.actions.pause("stock-taking", who="ann", wait=0)
    (row,) = read_shards(shard.caller, [shard.shard])
    assert row.pause is not None
    assert before <= row.pause.since <= shard.now()
    assert (row.pause.who, row.pause.why, row.paused, row.restless) == ("ann", "stock-taking", 1, 0)
    shard.actions.resume(who="bob")
    found = read_incidents(shard.caller, shard.shard.namespace, queue=shard.shard.queue)
    assert [(one.kind, one.who) for one in found] == [("resume", "bob"), ("pause", "ann")]
    assert "stock-taking" in found[1].says


def test_a_second_pause_has_the_last_word_on_why_and_the_first_on_since(shard):
    first = shard.actions.pause("one", who="ann")
    second = shard.actions.pause("two", who="bob")
    (row,) = read_shards(shard.caller, [shard.shard])
    assert first.since == second.since
    assert row.pause == Pause(first.since, "bob", "two")


def test_resuming_twice_changes_nothing(shard):
    shard.push("a")
    shard.lease()
    shard.actions.pause(wait=0)
    assert shard.actions.resume() == 1
    before = shard.dump()
    assert shard.actions.resume() == 0
    assert shard.dump() == before


def test_a_queue_that_nobody_has_used_can_be_paused(shard):
    assert shard.actions.pause("before the launch").is_confirmed
    assert shard.names() == {"meta", "paused"}
    shard.push("a")
    lease = shard.lease()
    with pytest.raises(Paused):
        lease.claim()
    assert shard.queued()


def test_an_open_claim_is_closed_and_none_is_opened(shard):
    """A push would put its job right into it, and the owner run that."""
    lease = shard.lease()
    lease.claim()
    assert shard.owner("open")
    shard.actions.pause(wait=0)
    assert not shard.owner("open")
    shard.push("a")
    assert (shard.queued().keys(), shard.claimed()) == ({"a"}, {})


def test_what_runs_is_finished_and_settled_and_opens_nothing(shard):
    shard.push("a")
    lease = shard.lease()
    lease.claim()
    shard.actions.pause(wait=0)
    assert shard.caller.run(shard.shard.finish("a", lease.epoch, lease.number, lease.number + 1)) is None
    assert (
        shard.caller.run(
            shard.shard.settle("a", lease.epoch, lease.number, Outcome(rest="ack", has_several=False))
        ).acked
        == 1
    )
    assert not shard.owner("open")


def test_a_job_that_fails_meanwhile_waits(shard):
    shard.push("a")
    lease = shard.lease()
    lease.claim()
    shard.actions.pause(wait=0)
    lease.fail("a", delay=0.0)
    with pytest.raises(Paused):
        lease.claim()
    assert shard.queued()["a"].retry_count == 0


def test_its_owner_confirms_and_gives_back_what_nobody_has_in_hand(shard):
    shard.push_all(("a",), ("b",))
    lease = shard.lease()
    lease.claim(limit=1)
    lease.claim_beside(limit=1)
    assert not shard.actions.pause(wait=0).is_confirmed
    assert rest(shard, lease, number=2, in_hand=[1])
    assert shard.claims().keys() == {1}
    assert shard.queued().keys() == {"b"}
    assert shard.actions.pause(wait=0).is_confirmed


def test_a_word_that_comes_late_confirms_no_later_pause(shard):
    shard.push("a")
    lease = shard.lease()
    lease.claim(limit=1)
    shard.push("b")
    shard.actions.pause(wait=0)
    shard.actions.resume()
    lease.claim_beside()
    shard.actions.pause(wait=0)
    assert not rest(shard, lease, number=1, in_hand=[1])
    assert not shard.actions.pause(wait=0).is_confirmed
    assert shard.claimed().keys() == {"a", "b"}


def test_only_its_owner_can_confirm(shard):
    lease = shard.lease()
    shard.actions.pause(wait=0)
    shard.lease("b", dead=["a"])
    with pytest.raises(Fenced):
        rest(shard, lease, number=1)


def test_nothing_rests_that_is_not_paused(shard):
    lease = shard.lease()
    assert not rest(shard, lease, number=1)
    assert not shard.owner("rests")


def test_the_next_owner_rests_from_its_first_moment_on(shard):
    shard.push("a")
    shard.lease().claim()
    shard.actions.pause(wait=0)
    lease = shard.lease("b", dead=["a"])
    assert shard.actions.pause(wait=0).is_confirmed
    assert shard.queued().keys() == {"a"}
    with pytest.raises(Paused):
        lease.claim()


def test_an_owner_whose_lease_has_ended_is_not_waited_for(shard):
    """Its own clock has kept it from starting anything by then."""
    lease = shard.lease(ttl=0.3)
    shard.push("a")
    lease.claim()
    begun = clock.monotonic()
    assert shard.actions.pause(wait=200.0).is_confirmed
    assert clock.monotonic() - begun < 100


def test_it_waits_for_its_owner_and_says_of_which_it_does_not_know(shard):
    lease = shard.lease()
    shard.push("a")
    lease.claim()
    begun = clock.monotonic()
    reply = shard.actions.pause(wait=0.2)
    assert reply.unconfirmed == {"a": [0]}
    assert clock.monotonic() - begun >= 0.2
    later = threading.Timer(0.1, lambda: rest(shard, lease, in_hand=[1]))
    later.start()
    assert shard.actions.pause(wait=200.0).is_confirmed
    later.join()


def test_a_renewal_tells_of_it_until_it_is_confirmed(shard):
    lease = shard.lease()
    call = renew([shard.shard], "a", [lease.epoch], 60.0)
    shard.actions.pause(wait=0)
    assert shard.caller.run(call) == [KEPT + PAUSED]
    rest(shard, lease, number=1)
    assert shard.caller.run(call) == [KEPT]
    shard.actions.resume()
    assert shard.caller.run(call) == [KEPT]


def test_its_node_is_rung(shard):
    shard.lease()
    with shard.redis.pubsub() as pubsub:
        pubsub.subscribe(keys.doorbell(shard.app.settings.namespace, "a"))
        wait_until(lambda: pubsub.get_message(timeout=1))
        shard.actions.pause(wait=0)
        message = wait_until(lambda: pubsub.get_message(timeout=1))
    assert message["data"] == b"pause " + shard.prefix


@pytest.mark.parametrize(("due", "rings"), [(None, b" 0.000000"), (FUTURE, b" ")])
def test_resuming_wakes_its_owner_for_what_has_come(shard, due, rings):
    lease = shard.lease()
    lease.claim()
    shard.actions.pause(wait=0)
    shard.push_all(("a", b"p", "", due) if due else ("a", b"p"))
    with shard.redis.pubsub() as pubsub:
        pubsub.subscribe(keys.doorbell(shard.app.settings.namespace, "a"))
        wait_until(lambda: pubsub.get_message(timeout=1))
        shard.actions.resume()
        message = wait_until(lambda: pubsub.get_message(timeout=1))
    assert message["data"].startswith(shard.prefix + rings)


def test_resuming_an_idle_shard_has_the_next_push_ring(shard):
    lease = shard.lease()
    lease.claim()
    shard.actions.pause(wait=0)
    shard.actions.resume()
    assert shard.owner("waiting") == "inf"


def test_jobs_can_be_deleted_buried_and_cancelled_meanwhile(shard):
    shard.push_all(("a",), ("b",), ("c",))
    shard.actions.pause()
    assert shard.actions.delete(["a"]) == shard.actions.bury(["b"]) == shard.actions.cancel(["c"]) == 1
    assert shard.actions.morgue_queue_up(["b"]) == 1
    assert shard.queued().keys() == {"b"}


def test_another_layout_is_refused(shard):
    shard.push("a")
    with pytest.raises(ShardsCountMismatch):
        shard.caller.run(Call("pause", [shard.prefix.decode()], ["2:7", "{}"], list))
    with pytest.raises(ShardsCountMismatch):
        shard.caller.run(Call("resume", [shard.prefix.decode()], ["2:7"], list))
    assert "paused" not in shard.names()


@pytest.mark.parametrize("junk", [b"", b"x", b"nan {}", b"1.0 []", b"\xff"])
def test_a_pause_that_cannot_be_read_is_one_all_the_same(shard, junk):
    shard.push("a")
    lease = shard.lease()
    shard.redis.set(shard.key("paused"), junk)
    with pytest.raises(Paused):
        lease.claim()
    read_shards(shard.caller, [shard.shard])
    assert shard.actions.resume() == 1
    assert lease.claim()


def test_a_pause_of_another_type_costs_no_other_shard_its_lease(app):
    one, other = ShardDriver(app, index=0), ShardDriver(app, index=1)
    leases = [one.lease(), other.lease()]
    one.redis.lpush(one.key("paused"), "x")
    call = renew([one.shard, other.shard], "a", [lease.epoch for lease in leases], 60.0)
    assert one.caller.run(call)[1] == KEPT


def test_it_works_when_memory_is_full(own_app):
    shard = ShardDriver(own_app)
    shard.push("a")
    lease = shard.lease()
    shard.redis.config_set("maxmemory", 1)
    shard.actions.pause("memory is full", wait=0)
    with pytest.raises(Paused):
        lease.claim()
    assert rest(shard, lease, number=1)
    assert shard.actions.resume() == 1
    assert lease.claim()


def test_a_queue_that_was_never_paused_keeps_nothing_of_it(shard):
    shard.push("a")
    shard.lease().claim()
    assert shard.names() == {"meta", "owner", "claim"}
