"""Held ids: kept from running until they are let go, whatever else happens to them."""

from __future__ import annotations

import pytest

from lowkiq.admin.metrics import read_shards
from lowkiq.admin.past.incidents import read_incidents
from lowkiq.errors import Paused, ShardsCountMismatch
from lowkiq.queue import keys
from lowkiq.queue.call import Call
from lowkiq.queue.shard import Exhausted
from tests.queue.look import NEVER
from tests.queue.shard_driver import FUTURE, PAST, ShardDriver
from tests.support import wait_until


def test_a_held_id_is_not_claimed_and_others_pass(shard):
    shard.push_all(("a",), ("b",), ("c",))
    assert shard.actions.hold(["a", "b"], "a customer called", who="ann") == 2
    lease = shard.lease()
    assert [job.id for job in lease.claim()] == ["c"]
    lease.ack("c")
    assert lease.claim() == []
    assert shard.queued()["a"].waits


def test_pushes_merge_into_it_and_all_of_it_runs_once_it_is_let_go(shard):
    shard.push("a", b"1")
    shard.actions.hold(["a"])
    shard.push("a", b"2")
    lease = shard.lease()
    assert lease.claim() == []
    assert shard.actions.release(["a"]) == 1
    (job,) = lease.claim()
    assert job.payloads == [b"1", b"2"]
    assert shard.names() == {"meta", "owner", "claim", "claim:a"}


def test_an_id_that_is_not_queued_can_be_held(shard):
    shard.actions.hold(["a"])
    assert shard.names() == {"meta", "held", "holds"}
    lease = shard.lease()
    assert lease.claim() == []
    shard.push("a")
    shard.push_all(("a", b"2"), ("b",))
    assert [job.id for job in lease.claim()] == ["b"]
    assert shard.queued()["a"].payloads.keys() == {b"p", b"2"}


def test_nothing_of_it_is_handed_over_to_a_thread_that_listens(shard):
    lease = shard.lease()
    lease.claim()
    assert shard.owner("open")
    shard.actions.hold(["a"])
    assert not shard.owner("open")
    lease.claim()
    assert not shard.owner("open"), "none is opened while anything is held"
    assert shard.caller.run(shard.shard.finish("a", lease.epoch, lease.number, lease.number + 1)) is None
    shard.actions.release(["a"])
    lease.claim()
    assert shard.owner("open")


def test_one_that_runs_is_finished_and_what_came_since_waits(shard):
    shard.push("a", b"1")
    lease = shard.lease()
    lease.claim()
    shard.actions.hold(["a"])
    shard.push("a", b"2")
    assert lease.settle(rest="ack", has_several=False).acked == 1
    assert lease.claim() == []
    assert shard.queued()["a"].payloads.keys() == {b"2"}
    shard.actions.release(["a"])
    assert [job.payloads for job in lease.claim()] == [[b"2"]]


def test_one_that_fails_meanwhile_is_held_with_its_failure(shard):
    shard.push("a", b"1")
    lease = shard.lease()
    lease.claim()
    shard.actions.hold(["a"])
    shard.push("a", b"2")
    lease.fail("a", delay=0.0, error="boom")
    assert lease.claim() == []
    job = shard.queued()["a"]
    assert (job.waits, job.retry_count, job.error, job.payloads.keys()) == (True, 0, "boom", {b"1", b"2"})


def test_the_death_of_its_node_does_not_let_it_go(shard):
    shard.push("a", b"1")
    shard.lease().claim()
    shard.actions.hold(["a"])
    shard.push("a", b"2")
    lease = shard.lease("b", dead=["a"])
    assert lease.claim() == []
    assert shard.queued()["a"].payloads.keys() == {b"1", b"2"}


def test_let_go_while_it_runs_it_waits_for_that_run(shard):
    shard.push("a", b"1")
    lease = shard.lease()
    lease.claim()
    shard.actions.hold(["a"])
    shard.push("a", b"2")
    shard.actions.release(["a"])
    assert lease.claim_beside() == []
    lease.settle(1, rest="ack")
    assert [job.payloads for job in lease.claim_beside()] == [[b"2"]]


@pytest.mark.parametrize("due", [PAST, FUTURE])
def test_it_keeps_its_time(shard, due):
    shard.push("a", b"p", 1.0, due)
    shard.actions.hold(["a"])
    assert shard.queued()["a"].perform_in == due
    shard.actions.release(["a"])
    job = shard.queued()["a"]
    assert (job.perform_in, job.waits, job.payloads) == (due, False, {b"p": 1.0})


def test_it_can_be_buried_deleted_and_cancelled_and_the_next_push_is_held_again(shard):
    shard.push_all(("a",), ("b",), ("c",))
    shard.actions.hold(["a", "b", "c"])
    assert shard.actions.bury(["a"]) == shard.actions.delete(["b"]) == shard.actions.cancel(["c"]) == 1
    assert shard.queued() == {}
    assert shard.actions.morgue_queue_up(["a"]) == 1
    shard.push_all(("b",), ("c",))
    lease = shard.lease()
    assert lease.claim() == []
    shard.actions.release(["a", "b", "c"])
    assert len(lease.claim()) == 3


def test_perform_now_and_deletions_that_are_undone_do_not_let_it_go(shard):
    shard.push("a", perform_in=FUTURE)
    shard.actions.hold(["a"])
    assert shard.actions.perform_now(["a"]) == 1
    lease = shard.lease()
    assert lease.claim() == []
    assert shard.actions.perform_all_jobs_now() == 0
    assert shard.call("put_away", shard.shard.layout, "queue", "x" * 16, 60, "a") == [1, 1]
    assert shard.call("put_back", shard.shard.layout, "x" * 16, "a") == 1
    assert lease.claim() == []
    assert shard.queued()["a"].perform_in <= shard.now()


def test_many_held_ids_are_met_once_each(shard):
    ids = [f"id-{n}" for n in range(3_000)]
    shard.actions.hold(ids)
    shard.push_all(*((id,) for id in ids), ("last",))
    lease = shard.lease()
    claims = 0
    while not (found := lease.try_claim(limit=1000)).jobs:
        claims += 1
        assert claims <= 4
    assert [job.id for job in found.jobs] == ["last"]
    assert shard.actions.release(ids) == 3_000
    lease.ack("last")
    assert len(lease.claim()) == 1_000


def test_who_and_why_are_kept_and_noted(shard):
    before = shard.now()
    shard.push("a")
    assert shard.actions.hold(["a", "b"], "a customer called", who="ann") == 2
    assert shard.actions.hold(["a"], "another", who="bob") == 0
    first, second = sorted(queries_of(shard).held(), key=lambda one: one.id)
    assert (first.id, first.who, first.why) == ("a", "bob", "another")
    assert (second.id, second.who, second.why) == ("b", "ann", "a customer called")
    assert before <= first.since == second.since <= shard.now()
    (row,) = read_shards(shard.caller, [shard.shard])
    assert row.held == 2
    shard.actions.release(["a"], who="ann")
    found = read_incidents(shard.caller, shard.shard.namespace, queue=shard.shard.queue)
    assert [(one.kind, one.who) for one in found] == [("release", "ann"), ("hold", "bob"), ("hold", "ann")]
    assert "a customer called" in found[2].says


def queries_of(shard: ShardDriver):
    return shard.app.queries(shard.shard.queue, 1)


def test_repeating_it_changes_nothing(shard):
    shard.push("a")
    shard.lease()
    shard.actions.hold(["a"])
    before = shard.jobs()
    assert shard.call("hold", shard.shard.layout, b'{"who":"","why":""}', "a") == 0
    assert shard.jobs() == before
    shard.actions.release(["a"])
    before = shard.jobs()
    assert shard.call("let_go", shard.shard.layout, "a") == 0
    assert shard.jobs() == before


def test_letting_go_wakes_its_owner(shard):
    shard.push("a")
    shard.actions.hold(["a"])
    lease = shard.lease()
    lease.claim()
    with shard.redis.pubsub() as pubsub:
        pubsub.subscribe(keys.doorbell(shard.app.settings.namespace, "a"))
        wait_until(lambda: pubsub.get_message(timeout=1))
        shard.actions.release(["a"])
        message = wait_until(lambda: pubsub.get_message(timeout=1))
    assert message["data"] == shard.prefix + b" 0.000000"


def test_another_layout_is_refused(shard):
    shard.push("a")
    for script, words in (("hold", ["{}", "a"]), ("let_go", ["a"])):
        with pytest.raises(ShardsCountMismatch):
            shard.caller.run(Call(script, [shard.prefix.decode()], ["2:7", *words], int))


def test_it_works_when_memory_is_full(own_app):
    shard = ShardDriver(own_app)
    shard.push_all(("a",), ("b",))
    lease = shard.lease()
    shard.redis.config_set("maxmemory", 1)
    assert shard.actions.hold(["a"]) == 1
    assert [job.id for job in lease.claim()] == ["b"]
    assert shard.actions.release(["a"]) == 1


def test_who_holds_an_id_that_nobody_can_read_holds_it_all_the_same(shard):
    shard.push("a")
    shard.actions.hold(["a"])
    shard.redis.hset(shard.key("holds"), "a", b"\xff")
    (one,) = queries_of(shard).held()
    assert (one.id, one.who, one.why) == ("a", "", "")
    assert shard.lease().claim() == []


# ── what is blocked as well ─────────────────────────────────────────────────────────────────────────────────────────


def block(shard, *ids):
    """Returns the lease under which these are blocked."""
    shard.push_all(*((id, payload) for id in ids for payload in (b"1", b"2")))
    lease = shard.lease()
    lease.claim()
    lease.settle(exhausted=[Exhausted(id, "boom", "block") for id in ids])
    return lease


def test_an_id_that_is_blocked_and_held_is_never_claimed(shard):
    lease = block(shard, "a", "b")
    shard.actions.hold(["a"])
    shard.push_all(("a", b"3"), ("b", b"3"))
    assert lease.claim() == []
    assert shard.queued()["a"].blocked and not shard.queued()["a"].waits
    (row,) = read_shards(shard.caller, [shard.shard])
    assert (row.length, row.blocked, row.held, row.waiting, row.due_in, row.lag) == (2, 2, 1, 0, None, 0)


@pytest.mark.parametrize(("action", "left"), [("retry", [b"1", b"2"]), ("skip", [b"2"])])
def test_a_blocked_id_that_goes_on_stays_held(shard, action, left):
    lease = block(shard, "a")
    shard.actions.hold(["a"])
    assert shard.actions.act(action, "blocked", ["a"]) == 1
    assert lease.claim() == []
    assert shard.queued()["a"].waits and not shard.queued()["a"].blocked
    shard.actions.release(["a"])
    assert [job.payloads for job in lease.claim()] == [left]


def test_a_held_id_that_is_let_go_stays_blocked(shard):
    lease = block(shard, "a")
    shard.actions.hold(["a"])
    assert shard.actions.release(["a"]) == 1
    assert lease.claim() == []
    assert shard.queued()["a"].blocked
    shard.actions.retry(["a"])
    assert [job.id for job in lease.claim()] == ["a"]


def test_a_run_of_a_held_id_that_ends_blocked_is_both(shard):
    shard.push("a")
    lease = shard.lease()
    lease.claim()
    shard.actions.hold(["a"])
    shard.push("a", b"2")
    assert lease.claim_beside() == []
    lease.settle(1, exhausted=[Exhausted("a", "boom", "block")])
    assert shard.queued()["a"].blocked and not shard.queued()["a"].waits
    shard.actions.release(["a"])
    assert shard.queued()["a"].blocked


def test_a_blocked_id_whose_deletion_is_undone_is_blocked_and_held_as_before(shard):
    lease = block(shard, "a")
    shard.actions.hold(["a"])
    assert shard.call("put_away", shard.shard.layout, "queue", "x" * 16, 60, "a") == [1, 1]
    assert shard.queued() == {}
    assert shard.call("put_back", shard.shard.layout, "x" * 16, "a") == 1
    assert lease.claim() == []
    assert shard.queued()["a"].blocked and shard.look().holds().keys() == {"a"}


def test_a_retry_while_its_shard_is_paused_starts_nothing(shard):
    lease = block(shard, "a", "b")
    shard.actions.pause(wait=0)
    assert shard.actions.retry(["a"]) == shard.actions.skip(["b"]) == 1
    with pytest.raises(Paused):
        lease.claim()
    shard.actions.resume()
    assert [(job.id, job.payloads) for job in lease.claim()] == [("a", [b"1", b"2"]), ("b", [b"2"])]


def test_resuming_a_shard_of_blocked_ids_only_hands_nothing_over_past_them(shard):
    lease = block(shard, "a")
    shard.actions.pause(wait=0)
    shard.actions.resume()
    assert float(shard.owner("waiting")) == NEVER
    assert lease.claim() == []
