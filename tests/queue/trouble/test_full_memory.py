"""When Redis's memory is full: pushes are refused and change nothing; what works the queue off goes on."""

from __future__ import annotations

import pytest
import redis

from lowkiq.errors import PushFailed
from lowkiq.queue.claims import Spoiled
from lowkiq.queue.places import QueuePlaces
from lowkiq.queue.shard import Exhausted, Failure, Owned
from tests.queue.shard_driver import FUTURE, PAST, ShardDriver


@pytest.fixture
def shard(own_app):
    return ShardDriver(own_app)


def fill_memory(shard):
    shard.redis.config_set("maxmemory", 1)


@pytest.mark.parametrize("known", ["nothing", "the shard", "the id", "several payloads"])
def test_a_push_is_refused_and_changes_nothing(shard, known):
    if known != "nothing":
        shard.push("a" if known != "the shard" else "b", b"x", 1.0, PAST)
    if known == "several payloads":
        shard.push("a", b"y", 2.0)
    before = shard.dump()
    fill_memory(shard)
    for rows in ([("a", b"z", 3.0, PAST)], [("a", b"z"), ("c", b"z"), ("a", b"x", 0.5)]):
        with pytest.raises(redis.ResponseError, match=r"OOM|used memory"):
            shard.push_all(*rows)
        assert shard.dump() == before


def test_who_pushes_is_told_what_to_do(own_app, shard):
    @own_app.worker(queue_name="q", shards_count=1)
    def work(payloads_by_id):
        pass

    work.perform_async([{"id": "a"}])
    fill_memory(shard)
    with pytest.raises(PushFailed, match=r"took 0 of 2 payloads for sure, .*; then push all of them again") as caught:
        work.perform_async([{"id": "b"}, {"id": "c"}])
    assert (caught.value.new, caught.value.merged) == (0, 0)


@pytest.mark.parametrize("scripts_lost", [False, True])
@pytest.mark.parametrize("retried", [False, True])
def test_what_works_the_queue_off_goes_on(shard, retried, scripts_lost):
    """Twice each, as if the first reply had been lost."""
    names = ["acked", "failed", "exhausted", "released", "spoiled", "rest"]
    shard.push_all(*((id, b"%d" % n, float(n), PAST) for id in names for n in range(2)))
    shard.push("single", b"0", 0.0, PAST)
    lease = shard.lease()
    if retried:
        lease.claim()
        lease.settle(failed=[Failure(id, 3, -FUTURE, "boom") for id in [*names, "single"]])
    fill_memory(shard)
    if scripts_lost:
        shard.redis.script_flush()

    assert len(lease.claim()) == 7
    outcome = {
        "acked": ["acked"],
        "failed": [Failure("failed", 4, 0, "boom")],
        "exhausted": [Exhausted("exhausted", "e"), Exhausted("single", "e")],
        "released": ["released"],
        "spoiled": [Spoiled("spoiled", b"1", "e")],
        "rest": "ack",
    }
    assert lease.settle(**outcome)[:3] == (3, 4, 3)
    assert lease.settle(**outcome)[:3] == (0, 0, 0)
    assert lease.renew() and lease.renew()
    assert len(lease.claim()) == 3
    assert lease.release("claim").restored == 3
    assert lease.release("claim").restored == 0
    lease.claim()
    assert isinstance(shard.try_acquire("b", dead=["a"]), Owned)
    other = shard.lease("b")
    assert other.isolate(other.claim()[0].id)
    assert other.abandon() == other.abandon() == 1
    assert other.release("lease").restored == 3
    assert shard.actions.delete(["exhausted", "failed"]) == 2
    assert shard.actions.morgue_delete_all_jobs() == 3
    assert list(shard.queued()) == ["released"]


@pytest.mark.parametrize("end", ["ack", "release", "fail", "acquire", "lease"])
def test_several_claims_go_on(shard, end):
    for id in "abc":
        shard.push(id, b"1")
    lease = shard.lease()
    lease.claim(limit=2)
    for id in "abd":
        shard.push(id, b"2")
    fill_memory(shard)
    assert [job.id for job in lease.claim_beside()] == ["c", "d"]
    assert {id for id, job in shard.queued().items() if job.waits} == {"a", "b"}
    assert lease.claim_beside() == []
    match end:
        case "ack":
            assert lease.settle(1, rest="ack", has_several=False).acked == 2
        case "release":
            assert lease.release("claim", number=1).restored == 2
        case "fail":
            lease.settle(1, failed=[Failure("a", 0, 60, "e")], rest="ack")
        case "acquire":
            assert shard.lease("b", dead=["a"]).claim()
        case "lease":
            assert lease.release("lease").restored == 4
    assert not any(job.waits for job in shard.queued().values())


def test_an_idle_node_goes_on(shard):
    """It writes nothing but marks, and the first write of a script is the one that may be refused."""
    lease = shard.lease()
    fill_memory(shard)
    assert lease.claim() == []
    assert lease.settle()[:3] == (0, 0, 0)
    assert lease.renew()
    assert lease.release("claim").restored == 0
    assert lease.abandon() == 1
    assert shard.lease("b", dead=["a"]).release("lease").restored == 0


def test_all_of_a_queue_can_be_worked_off(shard):
    shard.push_all(*((f"id-{n}", b"%d" % m, float(m), PAST) for n in range(100) for m in range(3)))
    fill_memory(shard)
    lease = shard.lease()
    while lease.claim(limit=7):
        lease.settle(rest="ack")
    lease.release("lease")
    assert shard.names() == {"meta", "owner"}


def test_places_are_taken_kept_and_given_back(shard):
    fill_memory(shard)
    calls = QueuePlaces(shard.shard.namespace, "q", "a", 15)
    assert shard.caller.run(calls.take(1, ["a 1"])) == ["a 1"]
    assert shard.caller.run(calls.take(1, ["a 2"])) == []
    assert shard.caller.run(calls.keep(1, ["a 1"])) == []
    assert shard.caller.run(calls.take(1, ["a 2"], ["a 1"])) == ["a 2"]
