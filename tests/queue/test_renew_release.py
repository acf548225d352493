"""renew, release and abandon: the rest of a lease's life."""

from __future__ import annotations

import pytest

from lowkiq.errors import Fenced
from lowkiq.queue.shard import KEPT, LOST, WANTED, Held, Owned, renew
from tests.queue.shard_driver import FUTURE, PAST, Claimed, Queued, ShardDriver
from tests.support import wait_until

# ── renew ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_renewed_lease_lasts_its_ttl_from_then_on(shard):
    lease = shard.lease(ttl=1)
    before = shard.now()
    assert lease.renew(ttl=100) is True
    assert before + 100 <= float(shard.owner("until")) <= shard.now() + 100
    assert shard.owner("epoch") == lease.epoch


def test_a_renewal_changes_nothing_but_the_end(shard):
    shard.push("a")
    lease = shard.lease()
    lease.claim()
    before = shard.dump()
    lease.renew()
    after = shard.dump()
    for state in (before, after):
        del state[shard.key("owner")][b"until"]
    assert after == before


@pytest.mark.parametrize("stale", ["node", "epoch"])
def test_a_lease_that_is_not_ours_is_not_renewed(shard, stale):
    lease = shard.lease()
    setattr(lease, stale, "1")
    before = shard.dump()
    assert lease.renew() is False
    assert shard.dump() == before


def test_a_lease_that_was_released_is_not_renewed(shard):
    lease = shard.lease()
    lease.release()
    before = shard.dump()
    assert lease.renew() is False
    assert shard.dump() == before


def test_a_lease_that_ran_out_is_kept_if_nobody_took_it(shard):
    lease = shard.lease(ttl=0.3)
    wait_until(lambda: shard.now() > float(shard.owner("until")))
    assert lease.renew() is True
    assert isinstance(shard.try_acquire("b"), Held)


def test_each_of_several_shards_is_renewed_or_not(app):
    shards = [ShardDriver(app, index=index, shards_count=3) for index in range(3)]
    leases = [shard.lease() for shard in shards]
    shards[1].lease("b", dead=["a"])
    call = renew([shard.shard for shard in shards], "a", [lease.epoch for lease in leases], 100.0)
    assert app.caller.run(call) == [KEPT, LOST, KEPT]
    assert [float(shard.owner("until")) > shard.now() + 90 for shard in shards] == [True, False, True]


def test_who_renews_learns_that_another_node_wants_the_shard_as_its_part(app):
    shards = [ShardDriver(app, index=index, shards_count=2) for index in range(2)]
    leases = [shard.lease() for shard in shards]
    shards[1].try_acquire("b")
    shards[0].try_acquire("b", is_foster=True)
    call = renew([shard.shard for shard in shards], "a", [lease.epoch for lease in leases], 100.0)
    assert app.caller.run(call) == [KEPT, WANTED]


# ── release ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("what", ["claim", "lease"])
@pytest.mark.parametrize("count", [1, 3])
def test_released_jobs_are_as_they_were(shard, what, count):
    shard.push_payloads("a", count)
    lease = shard.lease()
    lease.claim()
    lease.fail("a", 3, delay=-FUTURE)
    queued = shard.queued()
    lease.claim()
    assert lease.release(what).restored == 1
    assert shard.queued() == queued
    assert shard.claimed() == shard.crashes() == {}


def test_released_jobs_merge_like_failed_ones(shard):
    shard.push("a", b"x", 2.0, PAST)
    lease = shard.lease()
    lease.claim()
    shard.push_all(("a", b"x", 1.0, FUTURE), ("a", b"y", 3.0))
    lease.release("claim")
    assert shard.queued() == {"a": Queued({b"x": 1.0, b"y": 3.0}, PAST)}


def test_a_released_claim_leaves_the_lease(shard):
    lease = shard.lease()
    assert lease.release("claim").restored == 0
    assert isinstance(shard.try_acquire("b"), Held)


def test_a_released_lease_can_be_taken_at_once(shard):
    lease = shard.lease()
    lease.release("lease")
    assert isinstance(shard.try_acquire("b"), Owned)


def test_a_released_lease_leaves_only_its_epoch(shard):
    lease = shard.lease()
    lease.claim()
    lease.abandon()
    lease.release("lease")
    assert shard.redis.hgetall(shard.key("owner")) == {b"epoch": lease.epoch.encode()}


def test_a_released_claim_tells_the_next_due_time(shard):
    shard.push("a", perform_in=PAST)
    lease = shard.lease()
    lease.claim()
    assert lease.release("claim").due_in == pytest.approx(PAST - shard.now(), abs=5)
    assert lease.release("lease").due_in is None


def test_a_repeated_release_of_a_claim_changes_nothing(shard):
    shard.push_payloads("a", 2)
    lease = shard.lease()
    lease.claim()
    lease.release("claim")
    before = shard.dump()
    assert lease.release("claim").restored == 0
    assert shard.dump() == before


def test_a_repeated_release_of_a_lease_is_fenced_and_changes_nothing(shard):
    shard.push_payloads("a", 2)
    lease = shard.lease()
    lease.claim()
    lease.release("lease")
    before = shard.dump()
    with pytest.raises(Fenced):
        lease.release("lease")
    assert shard.dump() == before


@pytest.mark.parametrize("what", ["claim", "lease"])
def test_a_late_release_leaves_a_later_claim_alone(shard, what):
    shard.push("a", b"x", 1.0, PAST)
    lease = shard.lease()
    lease.release("claim", number=1)
    lease.try_claim(number=2)
    before = shard.jobs()
    assert lease.release(what, number=1).restored == 0
    assert shard.jobs() == before
    assert shard.claimed() == {"a": Claimed({b"x": 1.0}, PAST)}


def test_a_release_gives_back_an_earlier_claim_too(shard):
    """A claim whose reply was lost is given up under its own number, whether or not it arrived."""
    shard.push("a", b"x", 1.0, PAST)
    lease = shard.lease()
    lease.try_claim(number=1)
    assert lease.release("claim", number=2).restored == 1
    assert shard.owner("claim") == "2"


def test_a_settle_after_a_release_changes_nothing(shard):
    shard.push("a", b"x", 1.0, PAST)
    lease = shard.lease()
    lease.claim()
    lease.release("claim")
    before = shard.dump()
    assert lease.ack("a")[:3] == (0, 0, 0)
    assert lease.settle(rest="ack")[:3] == (0, 0, 0)
    assert shard.dump() == before


@pytest.mark.parametrize("what", ["claim", "lease"])
@pytest.mark.parametrize("stale", ["node", "epoch"])
def test_a_release_of_who_does_not_own_the_shard_changes_nothing(shard, what, stale):
    shard.push("a")
    lease = shard.lease()
    lease.claim()
    setattr(lease, stale, "1")
    before = shard.dump()
    with pytest.raises(Fenced):
        lease.release(what)
    assert shard.dump() == before


# ── abandon ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_abandoned_lease_lasts_to_its_end(shard):
    """User code may still run."""
    shard.push("a")
    lease = shard.lease(ttl=0.5)
    lease.claim()
    until = shard.owner("until")
    assert lease.abandon() == 1
    assert shard.owner("until") == until
    assert isinstance(shard.try_acquire("b"), Held)
    wait_until(lambda: isinstance(shard.try_acquire("b"), Owned))
    assert shard.now() > float(until)


def test_who_abandons_may_still_settle(shard):
    shard.push("a")
    lease = shard.lease()
    lease.claim()
    lease.abandon()
    assert lease.ack("a").acked == 1


@pytest.mark.parametrize("stale", ["node", "epoch"])
def test_who_does_not_own_a_shard_cannot_abandon_it(shard, stale):
    lease = shard.lease()
    setattr(lease, stale, "1")
    before = shard.dump()
    with pytest.raises(Fenced):
        lease.abandon()
    assert shard.dump() == before
