"""Checkpoints: what a run has kept is given back to whoever runs its payload again, and to nobody else."""

from __future__ import annotations

import pytest
import redis

from lowkiq.errors import Fenced
from lowkiq.queue.claims import Spoiled
from lowkiq.queue.shard import MAX_CLAIM_BYTES, Exhausted, Failure
from lowkiq.shared_page import DeadNode
from tests.beside import run_beside
from tests.queue.shard_driver import FUTURE, PAST
from tests.queue.wire import Wire

VALUE = b'{"page": 3, "\xff": ":"}'


@pytest.fixture(params=["alone", "with an older one", "several"])
def lease(request, shard):
    """A claim of "a", which has kept something."""
    if request.param == "alone":
        shard.push("a")
    else:
        shard.push_payloads("a", 2 if request.param == "several" else 1)
    lease = shard.lease()
    (job,) = lease.claim()
    assert job.checkpoint is None
    assert lease.checkpoint("a", b"earlier")
    assert lease.checkpoint("a", VALUE)
    return lease


#: Each gives the job back; they return the lease under which it is claimed again.
RETURNS = {
    "failed": lambda lease: (lease.fail("a", delay=-FUTURE), lease)[1],
    "released": lambda lease: (lease.settle(released=["a"]), lease)[1],
    "the rest released": lambda lease: (lease.settle(rest="release"), lease)[1],
    "the claim released": lambda lease: (lease.release("claim"), lease)[1],
    "drained": lambda lease: (lease.release("lease"), lease.driver.lease("b"))[1],
    "its node died": lambda lease: lease.driver.lease("b", dead=["a"]),
}


@pytest.mark.parametrize("back", RETURNS.values(), ids=list(RETURNS))
def test_it_is_given_back_as_often_as_the_job_runs_again(lease, back):
    for _ in range(2):
        lease = back(lease)
        (job,) = lease.claim()
        assert job.checkpoint == VALUE
        lease.node = lease.driver.owner("node")
        lease.release("lease")
        lease = lease.driver.lease("a")
        (job,) = lease.claim()
        assert job.checkpoint == VALUE


#: Each ends the job for good.
ENDS = {
    "acked": lambda lease: lease.ack("a"),
    "the rest acked": lambda lease: lease.settle(rest="ack", has_several=False),
    "exhausted": lambda lease: lease.exhaust("a"),
    "its node died once too often": lambda lease: (
        lease.isolate("a"),
        lease.driver.try_acquire("b", max_crashes=1, dead=[DeadNode("a")]),
    ),
    "cancelled": lambda lease: (lease.driver.actions.cancel(["a"]), lease.release("claim")),
    "deleted": lambda lease: (lease.release("claim"), lease.driver.actions.delete(["a"])),
    "buried": lambda lease: (lease.release("claim"), lease.driver.actions.bury(["a"])),
    "queued and cancelled": lambda lease: (lease.release("claim"), lease.driver.actions.cancel(["a"])),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=list(ENDS))
def test_it_goes_with_the_job(shard, lease, end):
    end(lease)
    assert "checkpoints" not in shard.names()
    assert "crashes" not in shard.names()


def test_it_goes_with_the_last_payload_that_can_be_read(shard):
    shard.push("a")
    lease = shard.lease()
    lease.claim()
    lease.checkpoint("a", VALUE)
    lease.settle(spoiled=[Spoiled("a", b"p", "e")], released=["a"])
    assert "checkpoints" not in shard.names()


def test_a_job_handed_over_can_keep_something(shard):
    shard.push_all(("a", b"x"), ("b", b"x"))
    lease = shard.lease()
    lease.claim()
    assert lease.checkpoint("b", VALUE)
    assert shard.caller.run(shard.shard.finish("a", lease.epoch, 1, 2)) is None
    assert lease.settle(rest="ack", has_several=False).acked == 2
    assert shard.names() == {"meta", "owner"}


def test_actions_on_what_waits_behind_a_run_leave_that_of_the_run(shard):
    lease = run_beside(shard)
    lease.checkpoint("hot", VALUE, number=1)
    shard.actions.delete(["hot"])
    lease.release("claim", number=1)
    (job,) = lease.claim_beside()
    assert (job.id, job.checkpoint) == ("hot", VALUE)


def test_it_belongs_to_the_payload_that_ran(shard):
    """What was pushed before it since knows nothing of it; with both in a batch it is given."""
    shard.push("a", b"second", 2.0, PAST)
    lease = shard.lease()
    lease.claim()
    lease.checkpoint("a", VALUE)
    shard.push("a", b"first", 1.0, PAST)
    lease.release("claim")
    assert [(job.payloads, job.checkpoint) for job in lease.claim(max_payloads=1)] == [([b"first"], None)]
    lease.release("claim")
    assert [(job.payloads, job.checkpoint) for job in lease.claim()] == [([b"first", b"second"], VALUE)]


@pytest.mark.parametrize("text", [b"1000000:x", b"x", b"", b":", b"nan:x", b"x:y", b"\xff:x"])
def test_what_belongs_to_no_payload_is_given_to_none(shard, text):
    """An older Lowkiq has left it behind, or somebody wrote it there."""
    shard.redis.hset(shard.key("checkpoints"), mapping={"a": text, "b": text})
    shard.push_all(("a", b"x"), ("b", b"x", 1.0, PAST), ("b", b"y", 2.0))
    assert [job.checkpoint for job in shard.lease().claim()] == [None, None]


def test_what_an_older_one_has_left_goes_once_the_queue_is_empty(shard):
    shard.push("a")
    lease = shard.lease()
    shard.redis.hset(shard.key("checkpoints"), "x", "1:x")
    lease = shard.lease("b", dead=["a"])
    assert "checkpoints" in shard.names()
    lease.claim()
    lease.ack("a")
    shard.lease("c", dead=["b"])
    assert "checkpoints" not in shard.names()


def test_suspects_have_theirs_too(shard, lease):
    lease = shard.lease("b", dead=["a"])
    lease.claim()
    claim = shard.lease("c", dead=["b"]).try_claim()
    assert claim.crowds == 1
    assert [job.checkpoint for job in claim.jobs] == [VALUE]


def test_it_is_kept_only_for_a_job_of_that_claim(shard, lease):
    before = shard.dump()
    assert not lease.checkpoint("b", VALUE)
    assert not lease.checkpoint("a", VALUE, number=2)
    assert not lease.checkpoint("a", VALUE, number=0)
    assert shard.dump() == before
    lease.ack("a")
    before = shard.dump()
    assert not lease.checkpoint("a", VALUE)
    assert shard.dump() == before


def test_of_a_claim_beside_another(shard):
    lease = run_beside(shard)
    assert lease.checkpoint("hot", VALUE, number=1)
    assert not lease.checkpoint("hot", VALUE, number=2)
    assert lease.checkpoint("slow", b"other", number=2)
    lease.release("lease")
    assert {job.id: job.checkpoint for job in shard.lease("b").claim()} == {"hot": VALUE, "slow": b"other"}


def test_who_lost_the_shard_keeps_nothing(shard, lease):
    shard.lease("b", dead=["a"]).claim()
    before = shard.dump()
    with pytest.raises(Fenced):
        lease.checkpoint("a", VALUE)
    assert shard.dump() == before


def test_checkpoints_count_as_bytes_of_a_claim(shard):
    ids = [f"id-{n}" for n in range(4)]
    shard.push_all(*((id, b"x", float(n), PAST + n) for n, id in enumerate(ids)))
    lease = shard.lease()
    lease.claim()
    for id in ids:
        lease.checkpoint(id, b"x" * (MAX_CLAIM_BYTES // 2))
    lease.release("claim")
    assert [job.id for job in lease.claim()] == ids[:2]


def test_ids_of_any_bytes_find_theirs(shard):
    id = b"\xff\xfe id".decode("utf-8", "surrogateescape")
    shard.push(id)
    lease = shard.lease()
    lease.claim()
    assert lease.checkpoint(id, VALUE)
    lease.release("claim")
    assert [(job.id, job.checkpoint) for job in lease.claim()] == [(id, VALUE)]


def test_a_failure_of_others_leaves_it_and_exhaustion_does_not(shard):
    shard.push_all(("a", b"x"), ("b", b"x"), ("c", b"x"))
    lease = shard.lease()
    lease.claim()
    for id in "abc":
        lease.checkpoint(id, VALUE)
    lease.settle(failed=[Failure("a", 0, 60, "e")], exhausted=[Exhausted("b", "e")], rest="ack")
    assert shard.redis.hkeys(shard.key("checkpoints")) == [b"a"]


def test_one_that_comes_after_a_later_one_changes_nothing(shard, lease, monkeypatch):
    wire = Wire(shard.caller, lambda: None, monkeypatch)
    wire.hold_up()
    with pytest.raises(redis.TimeoutError):
        lease.checkpoint("a", b"earlier")
    assert lease.checkpoint("a", b"later")
    (reply,) = wire.arrive()
    assert str(reply).startswith("LATE"), reply
    lease.fail("a", delay=-FUTURE)
    (job,) = lease.claim()
    assert job.checkpoint == b"later"


def test_one_whose_reply_was_lost_changes_nothing_that_came_since(shard, lease, monkeypatch):
    """Two threads of one run keep something."""
    wire = Wire(shard.caller, lambda: lease.checkpoint("a", b"later"), monkeypatch)
    wire.lose_reply()
    assert lease.checkpoint("a", b"earlier")
    lease.fail("a", delay=-FUTURE)
    (job,) = lease.claim()
    assert job.checkpoint == b"later"
