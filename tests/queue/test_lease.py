"""The lease of a shard: what the model of a shard doesn't decide of acquire, renew, release and abandon."""

from __future__ import annotations

import pytest

from lowkiq.admin.beats.members import FOSTER
from lowkiq.errors import Fenced
from lowkiq.queue.call import Call
from lowkiq.queue.keys import Layout, doorbell
from lowkiq.queue.shard import KEPT, LOST, WANTED, Crashed, Held, Owned, renew
from tests.queue.shard_driver import PAST, ShardDriver
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
    assert owned[1:] == (None, 0, 0, False, False, False)


def test_a_lease_that_ran_out_counts_as_a_crash(shard):
    shard.push("a")
    shard.lease("a", ttl=0.3).claim()
    wait_until(lambda: isinstance(shard.try_acquire("b"), Owned))
    assert shard.crashes() == {"a": 1}


def test_the_innocent_around_a_deadly_job_survive(shard):
    """All of a claim are suspects in the end; in a process of its own each proves what it is."""
    shard.push_all(*((f"id-{n}", b"x", 1.0, PAST + n) for n in range(40)))
    shard.lease("node-0").claim()
    take_over(shard, "node-1").claim()
    lease, done, deaths = take_over(shard, "node-2"), [], 0
    while claim := lease.try_claim().jobs:
        (job,) = claim
        if job.id == "id-1":
            deaths += 1
            lease.settle(crashed=[Crashed(job.id, 3)])
        else:
            done.append(job.id)
            lease.ack(job.id)
    assert done == ["id-0", *(f"id-{n}" for n in range(2, 40))]
    assert deaths == 2
    assert list(shard.morgue()) == ["id-1"]
    assert shard.crashes() == {}


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


def test_a_released_lease_leaves_only_its_epoch(shard):
    lease = shard.lease()
    lease.claim()
    lease.abandon()
    lease.release("lease")
    assert shard.redis.hkeys(shard.key("owner")) == [b"epoch", b"asker", b"asked"], "who asked last, and its number"
    assert shard.owner("epoch") == lease.epoch


def test_a_release_rings_the_node_that_stands_by_for_the_shard(shard):
    with shard.redis.pubsub() as pubsub:
        pubsub.subscribe(doorbell(shard.app.settings.namespace, "b"))
        pubsub.get_message(timeout=60)
        lease = shard.lease()
        shard.try_acquire("b")
        shard.try_acquire("c", is_foster=True)
        assert lease.release("claim").told == ""
        assert lease.release("lease").told == "b"
        message = pubsub.get_message(timeout=60)
    assert message and message["data"] == FOSTER + b" " + shard.prefix


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


@pytest.mark.parametrize("is_resharded", [False, True])
def test_epochs_rise_though_a_failover_has_lost_the_last_lease(app, clock, is_resharded):
    """The owner of whom the new primary knows nothing may have written to a database under its epoch."""
    shard = ShardDriver(app, shards_count=Layout(2, 4, 2) if is_resharded else 4)
    if is_resharded:
        shard.caller.run(_feed(shard, 5))
    shard.lease("a").release()
    if is_resharded:
        shard.caller.run(Call("end_feed", [shard.shard.prefix], [shard.shard.layout, 0, 5], int))
    for seconds in (1, 3600, 86_400):
        clock.step(seconds * 1e6)
        replica = shard.copy()
        lost = shard.lease("b")
        shard.restore(replica)
        clock.step(1e6)
        assert int(shard.lease("c").epoch) > int(lost.epoch)
        clock.step(60e6)


def test_a_database_goes_on_after_a_failover_that_has_lost_a_reshard(app, clock):
    """Epochs of new shards are those of the clock, too: what the old shards are given then is above them."""
    old, new = ShardDriver(app, shards_count=2), ShardDriver(app, shards_count=Layout(2, 4, 2))
    new.caller.run(_feed(new, 5))
    before = new.lease("a")
    clock.step(1e6)
    mover = clock.now
    new.caller.run(_feed(new, mover))
    new.caller.run(Call("end_feed", [new.shard.prefix], [new.shard.layout, 0, mover], int))
    with pytest.raises(Fenced):
        before.claim()
    clock.step(1e6)
    lost = int(new.lease("a").epoch)
    assert lost == clock.now > mover
    clock.step(1e6)
    assert int(old.lease("c").epoch) > lost


def test_an_epoch_is_above_those_of_an_old_shard_whose_clock_was_set_back(app, clock):
    shard = ShardDriver(app, shards_count=Layout(2, 4, 2))
    mover = clock.now + 86_400_000_000
    shard.caller.run(_feed(shard, mover))
    before = shard.lease("a")
    shard.caller.run(Call("end_feed", [shard.shard.prefix], [shard.shard.layout, 0, mover], int))
    with pytest.raises(Fenced):
        before.claim()
    assert int(shard.lease("a").epoch) > mover


def _feed(shard: ShardDriver, epoch: int) -> Call[int]:
    return Call("feed", [shard.shard.prefix], [shard.shard.layout, 0, epoch, 2, 2, 0, b"", b"", 0], int)
