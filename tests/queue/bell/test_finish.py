"""finish: what settle and claim do of a job that came alone (finish.lua)."""

from __future__ import annotations

import pytest

from lowkiq.errors import StaleClaim, Unsettled
from lowkiq.queue.shard import Settled
from tests.queue.bell.test_hand_over import handed, listen, listening
from tests.queue.shard_driver import FUTURE, PAST, Lease, ShardDriver


@pytest.fixture
def lease(shard: ShardDriver) -> Lease:
    return listening(shard)


def finish(lease: Lease, following: int | None = None) -> Settled | None:
    """Ends the last claim and opens the next, whose number is the last one then."""
    following = following or lease.number + 1
    call = lease.driver.shard.finish(lease.node, lease.epoch, lease.number, following)
    settled = lease.driver.caller.run(call)
    if settled:
        lease.number = following
    return settled


def test_a_job_is_done_and_the_next_one_goes_into_the_next_claim(shard, lease):
    for turn in range(1, 4):
        listen(shard)
        shard.push("a", b"%d" % turn)
        epoch, number, (job,) = handed(shard)
        assert (epoch, number, job.payloads) == (lease.epoch, turn, [b"%d" % turn])
        assert finish(lease) == (1, 0, 0, None)
        assert (shard.claimed(), shard.queued(), shard.meta("processed")) == ({}, {}, turn)


def test_it_leaves_what_settle_and_claim_leave(shard, lease):
    other = ShardDriver(shard.app, "other")
    theirs = other.lease()
    for driver, owner in ((shard, lease), (other, theirs)):
        if driver is other:
            owner.claim()
        driver.redis.hdel(driver.key("owner"), "bell")  # it goes through the queue
        driver.push_all(*((id, b"x") for id in "abc"))
        owner.claim()
    finish(lease)
    theirs.settle(rest="ack", has_several=False)
    theirs.claim()
    owner = {driver: driver.redis.hgetall(driver.key("owner")) for driver in (shard, other)}
    for fields, its_lease in ((owner[shard], lease), (owner[other], theirs)):
        assert fields.pop(b"open") == f"{its_lease.epoch} {its_lease.number}".encode()
        for field in (b"epoch", b"until", b"last_due", b"ttl", b"asked"):
            fields.pop(field)
    assert owner[shard] == owner[other]
    assert shard.meta("processed") == other.meta("processed") == 3
    names = [{key.rpartition(b":")[2] for key in driver.redis.keys(driver.prefix + b"*")} for driver in (shard, other)]
    assert names[0] == names[1]


def test_repeated_it_changes_nothing_and_the_usual_way_finds_out(shard, lease):
    shard.push("a")
    call = shard.shard.finish(lease.node, lease.epoch, 1, 2)
    assert shard.caller.run(call) == (1, 0, 0, None)
    listen(shard)
    shard.push("b")
    before = shard.dump()
    assert shard.caller.run(call) is None
    assert lease.settle(number=1, rest="ack") == (0, 0, 0, None)
    assert set(shard.claimed()) == {"b"}
    assert shard.meta("processed") == 1
    with pytest.raises(StaleClaim):
        lease.try_claim(number=2)
    with pytest.raises(Unsettled):
        lease.try_claim(number=3)
    assert shard.dump().keys() == before.keys()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda shard, lease: shard.push("b", perform_in=PAST),
        lambda shard, lease: shard.push("b", perform_in=FUTURE),
        lambda shard, lease: shard.push("a", b"behind"),
        lambda shard, lease: shard.redis.hset(shard.key("crashes"), "a", 1),
        lambda shard, lease: shard.redis.hset(shard.key("errors"), "a", "boom"),
        lambda shard, lease: shard.redis.hset(shard.key("cancels"), "a", "5 1"),
        lambda shard, lease: shard.redis.hset(shard.key("checkpoints"), "a", "1:x"),
        lambda shard, lease: shard.redis.hset(shard.key("asides"), "7", "0"),
        lambda shard, lease: shard.redis.hset(shard.key("owner"), "claim", 9),
        lambda shard, lease: shard.redis.hset(shard.key("owner"), "node", "another"),
        lambda shard, lease: shard.redis.hset(shard.key("owner"), "epoch", 5),
        lambda shard, lease: shard.redis.hdel(shard.key("owner"), "node"),
    ],
)
def test_anything_else_in_the_shard_needs_settle_and_claim(shard, lease, spoil):
    shard.push("a")
    spoil(shard, lease)
    before = state(shard)
    assert finish(lease) is None
    assert state(shard) == before
    assert before[-1][0] == b"a"


def state(shard):
    redis, key = shard.redis, shard.key
    return redis.hgetall(key("owner")), redis.hgetall(key("meta")), redis.lrange(key("claim"), 0, -1)


def test_jobs_that_were_settled_before_are_counted_once(shard, lease):
    shard.redis.hdel(shard.key("owner"), "bell")
    shard.push_all(("a", b"x"), ("b", b"x"))
    lease.claim()
    lease.ack("a")
    assert finish(lease) == (1, 0, 0, None)
    assert shard.meta("processed") == 2
    assert finish(lease) == (0, 0, 0, None)


def test_it_works_when_memory_is_full(own_app):
    shard = ShardDriver(own_app)
    lease = listening(shard)
    shard.push("a")
    shard.redis.config_set("maxmemory", 1)
    assert finish(lease) == (1, 0, 0, None)
