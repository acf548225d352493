"""acquire: the lease of a shard, and what its last owner left in hand."""

from __future__ import annotations

import pytest

from lowkiq.errors import Fenced, ShardsCountMismatch
from lowkiq.queue.shard import Held, Owned
from tests.queue.shard_driver import FUTURE, PAST, Dead, Queued, ShardDriver
from tests.support import wait_until


def take_over(shard, node, max_crashes=3):
    """The lease of a shard whose holder has died."""
    return shard.lease(node, max_crashes=max_crashes, dead=[shard.owner("node")])


def test_a_free_shard_is_owned_at_the_time_of_redis(shard):
    before = shard.now()
    owned = shard.try_acquire("a", ttl=15)
    assert isinstance(owned, Owned)
    assert before <= int(owned.epoch) / 1e6 <= shard.now()
    assert (shard.owner("node"), shard.owner("epoch")) == ("a", owned.epoch)
    assert float(shard.owner("until")) == pytest.approx(int(owned.epoch) / 1e6 + 15, abs=1e-5)
    assert owned[1:] == (None, 0, 0)


def test_a_held_shard_tells_its_holder_and_the_rest_of_its_lease(shard):
    shard.lease("a", ttl=15)
    before = shard.dump()
    held = shard.try_acquire("b")
    assert isinstance(held, Held)
    assert held.holder == "a"
    assert 0 < held.rest <= 15
    assert shard.owner("wanted") == "b"
    after = shard.dump()
    del after[shard.key("owner")][b"wanted"]
    assert after == before


def test_who_would_only_stand_in_for_a_held_shard_changes_nothing(shard):
    shard.lease("a")
    before = shard.dump()
    assert isinstance(shard.try_acquire("b", is_foster=True), Held)
    assert shard.dump() == before


@pytest.mark.parametrize("ends", ["released", "taken over"])
def test_who_wanted_a_shard_is_forgotten_with_the_lease(shard, ends):
    lease = shard.lease("a")
    shard.try_acquire("b")
    if ends == "released":
        lease.release()
    else:
        shard.lease("c", dead=["a"])
    assert shard.owner("wanted") is None


def test_a_lease_ends_by_itself(shard):
    shard.lease("a", ttl=0.3)
    assert isinstance(shard.try_acquire("b"), Held)
    owned = wait_until(lambda: isinstance(found := shard.try_acquire("b"), Owned) and found)
    assert shard.owner("node") == "b"
    assert shard.owner("epoch") == owned.epoch


def test_the_lease_of_a_node_known_to_be_dead_is_taken_at_once(shard):
    shard.lease("a")
    assert isinstance(shard.try_acquire("b", dead=["x", "y"]), Held)
    assert isinstance(shard.try_acquire("b", dead=["x", "a"]), Owned)


def test_the_owner_may_acquire_again(shard):
    first = shard.lease("a")
    again = shard.lease("a")
    assert int(again.epoch) > int(first.epoch)
    with pytest.raises(Fenced):
        first.claim()


def test_the_due_time_of_the_oldest_job_is_told(shard):
    shard.push("a", perform_in=PAST)
    shard.push("b", perform_in=FUTURE)
    assert shard.try_acquire("a").due_in == pytest.approx(PAST - shard.now(), abs=5)


# ── what comes back ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("retry_count", [-1, 4])
def test_a_dead_nodes_jobs_return_as_they_were(shard, count, retry_count):
    shard.push_payloads("a", count)
    lease = shard.lease("a")
    if retry_count >= 0:
        lease.claim()
        lease.fail("a", retry_count, delay=0)
    queued = shard.queued()
    lease.claim()
    owned = shard.try_acquire("b", dead=["a"])
    assert (owned.restored, owned.buried) == (1, 0)
    assert shard.queued() == queued
    assert shard.claimed() == {}


def test_a_dead_nodes_jobs_merge_like_failed_ones(shard):
    """Their perform_in and retry_count win; equal payloads keep the lower score."""
    shard.push_payloads("a", 2)
    lease = shard.lease("a")
    lease.claim()
    lease.fail("a", 4, delay=-FUTURE)
    perform_in = shard.queued()["a"].perform_in
    lease.claim()
    shard.push_all(("a", b"0", -1.0, FUTURE), ("a", b"1", 9.0), ("a", b"new", 5.0))
    take_over(shard, "b")
    assert shard.queued() == {"a": Queued({b"0": -1.0, b"1": 1.0, b"new": 5.0}, perform_in, 4, "boom")}


def test_settled_jobs_do_not_come_back(shard):
    shard.push_all(("a", b"x", 1.0, PAST), ("b", b"x", 1.0, PAST))
    lease = shard.lease("a")
    lease.claim()
    lease.ack("a")
    assert shard.try_acquire("b", dead=["a"]).restored == 1
    assert list(shard.queued()) == ["b"]


# ── crashes ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_crash_counts_against_each_job_in_hand(shard):
    shard.push_all(("a", b"x", 1.0, PAST), ("b", b"x", 1.0, PAST), ("later", b"x", 1.0, FUTURE))
    shard.lease("a").claim()
    take_over(shard, "b")
    assert shard.crashes() == {"a": 1, "b": 1}


def test_a_lease_that_ran_out_counts_as_a_crash(shard):
    shard.push("a")
    shard.lease("a", ttl=0.3).claim()
    wait_until(lambda: isinstance(shard.try_acquire("b"), Owned))
    assert shard.crashes() == {"a": 1}


def test_a_release_is_no_crash(shard):
    shard.push("a")
    lease = shard.lease("a")
    lease.claim()
    lease.release("lease")
    assert shard.try_acquire("b").restored == 0
    assert shard.crashes() == {}


def test_an_abandoned_claim_is_no_crash(shard):
    shard.push("a")
    lease = shard.lease("a")
    lease.claim()
    lease.abandon()
    assert isinstance(shard.try_acquire("b"), Held)
    assert shard.try_acquire("b", dead=["a"]).restored == 1
    assert shard.crashes() == {}
    assert "a" in shard.queued()


def test_an_abandoned_mark_is_only_good_for_one_owner(shard):
    shard.push("a")
    lease = shard.lease("a")
    lease.claim()
    lease.abandon()
    take_over(shard, "b").claim()
    take_over(shard, "c")
    assert shard.crashes() == {"a": 1}


def test_the_same_node_taking_its_shard_again_is_no_crash(shard):
    shard.push("a")
    shard.lease("a").claim()
    assert shard.try_acquire("a").restored == 1
    assert shard.crashes() == {}


def test_releasing_keeps_the_crashes_that_were(shard):
    shard.push("a")
    shard.lease("a").claim()
    lease = take_over(shard, "b")
    lease.claim()
    lease.settle(released=["a"])
    assert shard.crashes() == {"a": 1}


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("max_crashes", [1, 3])
def test_a_job_whose_nodes_die_max_crashes_times_goes_to_the_morgue(shard, max_crashes, count):
    shard.push_payloads("a", count)
    shard.lease("node-0").claim()
    for n in range(1, max_crashes + 1):
        assert shard.morgue() == {}
        owned = shard.try_acquire(f"node-{n}", max_crashes=max_crashes, dead=[f"node-{n - 1}"])
        if n < max_crashes:
            assert (owned.restored, owned.buried) == (1, 0)
            shard.lease(f"node-{n}").claim()
    assert (owned.restored, owned.buried, owned.due_in) == (0, 1, None)
    error = f"the node that ran this job died {max_crashes} times (max_crashes)"
    assert shard.morgue() == {"a": Dead({b"%d" % n: float(n) for n in range(count)}, error)}
    assert shard.queued() == {}
    assert shard.crashes() == {}


def test_the_innocent_around_a_deadly_job_survive(shard):
    """All of a claim are suspects at first; alone, each proves what it is."""
    shard.push_all(*((f"id-{n}", b"x", 1.0, PAST + n) for n in range(4)))
    shard.lease("node-0").claim()
    done = []
    for n in range(1, 20):
        lease = take_over(shard, f"node-{n}")
        while jobs := lease.claim():
            if any(job.id == "id-1" for job in jobs):
                break
            done += [job.id for job in jobs]
            lease.settle(rest="ack")
        if not jobs:
            break
    assert done == ["id-0", "id-2", "id-3"]
    assert list(shard.morgue()) == ["id-1"]
    assert shard.crashes() == {}


def test_a_deadly_job_takes_along_only_what_was_in_hand(shard):
    shard.push_payloads("a", 3)
    lease = shard.lease("a")
    lease.claim(max_payloads=2)
    shard.push("a", b"new", 9.0)
    take_over(shard, "b", max_crashes=1)
    assert shard.morgue()["a"].payloads == {b"0": 0.0, b"1": 1.0}
    assert shard.queued() == {"a": Queued({b"2": 2.0, b"new": 9.0}, PAST)}


def test_a_deadly_job_leaves_no_old_error(shard):
    shard.push("a")
    lease = shard.lease("a")
    lease.claim()
    lease.fail("a", delay=0)
    lease.claim()
    take_over(shard, "b", max_crashes=1)
    assert shard.errors() == {}
    assert "died 1 times" in shard.morgue()["a"].error


@pytest.mark.parametrize("count", [1, 500])
def test_a_whole_claim_can_be_buried(shard, count):
    shard.push_all(*((f"id-{n}", b"x", 1.0, PAST) for n in range(count)))
    shard.lease("a").claim()
    assert shard.try_acquire("b", max_crashes=1, dead=["a"]).buried == count
    assert len(shard.morgue()) == count


# ── layout ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_acquire_sets_the_layout_of_a_new_shard(app):
    ShardDriver(app, shards_count=4).lease()
    with pytest.raises(ShardsCountMismatch):
        ShardDriver(app, shards_count=3).push("a")


@pytest.mark.parametrize("dead", [[], ["a"]])
def test_an_acquire_with_another_shards_count_changes_nothing(app, shard, dead):
    shard.push("a")
    shard.lease("a").claim()
    before = shard.dump()
    with pytest.raises(ShardsCountMismatch):
        ShardDriver(app, shards_count=2).try_acquire("b", dead=dead)
    assert shard.dump() == before
