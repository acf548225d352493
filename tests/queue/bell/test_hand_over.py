"""A push that puts its job right into the open claim of a shard whose thread listens (push.lua)."""

from __future__ import annotations

import pytest
import redis

from lowkiq.errors import Unsettled
from lowkiq.job import Job
from lowkiq.queue.bell import parse_ring
from lowkiq.queue.claims import Claim, Spoiled, claim_handed
from lowkiq.queue.shard import peek
from lowkiq.shared_page import DeadNode
from tests.queue.look import Claimed
from tests.queue.shard_driver import FUTURE, PAST, Lease, ShardDriver

BELL = "bell:a:0"


@pytest.fixture
def lease(shard):
    """Of a thread that has found nothing, and listens."""
    return listening(shard)


def listening(shard: ShardDriver, node: str = "a", dead: tuple[str, ...] = ()) -> Lease:
    bell = f"{shard.app.settings.namespace}:{BELL}"
    owned = shard.caller.run(shard.shard.acquire(node, 60, 3, [DeadNode(name) for name in dead], bell=bell))
    lease = Lease(shard, node, owned.epoch)
    shard.become_known()
    lease.claim()
    listen(shard)
    return lease


def listen(shard: ShardDriver) -> None:
    shard.redis.set(f"{shard.app.settings.namespace}:{BELL}:idle", 1)


def rings(shard: ShardDriver) -> list[bytes]:
    with shard.redis.pipeline() as pipeline:
        bell = f"{shard.app.settings.namespace}:{BELL}"
        pipeline.lrange(bell, 0, -1)
        pipeline.unlink(bell)
        rung: list[bytes] = pipeline.execute()[0]
    return rung


def handed(shard: ShardDriver) -> tuple[str, int, list[Job]]:
    """The epoch and number of the claim, and its jobs, as the one ring tells."""
    (message,) = rings(shard)
    ring = parse_ring(message)
    assert ring.handed
    assert ring.was_idle
    assert (ring.shard, ring.due_in) == (shard.prefix, 0.0)
    return ring.handed.epoch, ring.handed.number, claim_handed(ring.handed, bytes).jobs


def is_in_the_queue(shard: ShardDriver, *ids: str) -> bool:
    return shard.claimed() == {} and set(shard.queued()) == set(ids)


def test_a_job_goes_right_into_the_open_claim(shard, lease):
    assert shard.push("a", b"1:x") == (1, 0)
    epoch, number, (job,) = handed(shard)
    assert (epoch, number) == (lease.epoch, 1)
    assert (job.id, job.payloads, job.retry_count) == ("a", [b"1:x"], -1)
    assert job.scores == (job.perform_in,) == (pytest.approx(shard.now(), abs=60),)
    assert shard.queued() == {}
    assert shard.claimed() == {"a": Claimed({b"1:x": job.perform_in}, job.perform_in)}
    assert (shard.meta("pushed"), shard.meta("merged")) == (1, 0)


@pytest.mark.parametrize("id", ["a b", " ", "5 a", "é", "\n", ""])
@pytest.mark.parametrize("payload", [b"", b" ", b"a b:c", b"\x00\xff\n"])
def test_any_id_and_payload_come_whole(shard, lease, id, payload):
    shard.push(id, payload)
    _, _, (job,) = handed(shard)
    assert (job.id, job.payloads) == (id, [payload])


def test_one_that_cannot_be_read_is_spoiled(shard, lease):
    def load(payload):
        raise ValueError("no")

    shard.push("a", b"x")
    (message,) = rings(shard)
    claim = claim_handed(parse_ring(message).handed, load)
    assert claim == Claim([], [Spoiled("a", b"x", "load_payload can't decode this payload: ValueError: no")], None)


def test_one_whose_id_is_none_of_the_worker_s_is_spoiled(shard, lease):
    shard.push("a", b"x")
    (message,) = rings(shard)
    claim = claim_handed(parse_ring(message).handed, bytes, int)
    assert [(row.id, row.payload) for row in claim.spoiled] == [("a", b"x")]
    assert claim.jobs == []


def test_it_is_settled_like_any_other(shard, lease):
    shard.push("a")
    assert lease.settle(rest="ack")[:2] == (1, 0)
    assert shard.names() == {"meta", "owner"}
    lease.claim()
    listen(shard)
    shard.push("a", b"2")
    lease.fail("a", retry_count=0, delay=-1)
    assert lease.claim()[0].payloads == [b"2"]


def test_a_push_that_memory_has_no_room_for_leaves_the_thread_idle(shard, lease):
    shard.redis.config_set("maxmemory", 1)
    try:
        with pytest.raises(redis.ResponseError, match=r"OOM|maxmemory"):
            shard.push("a")
    finally:
        shard.redis.config_set("maxmemory", 0)
    assert (rings(shard), shard.claimed(), shard.queued()) == ([], {}, {})
    shard.push("a")
    assert handed(shard)[2][0].id == "a"


def test_a_job_that_is_due_later_is_heard_of_when_the_first_is_settled(shard, lease):
    shard.push("later", perform_in=FUTURE)
    rings(shard)
    listen(shard)
    shard.push("a")
    assert handed(shard)[2][0].id == "a"
    assert lease.settle(rest="ack").due_in == pytest.approx(FUTURE - shard.now(), abs=60)


def test_one_ring_hands_over_one_job(shard, lease):
    shard.push("a")
    shard.push("b")
    shard.push("a", b"2")
    assert handed(shard)[2][0].id == "a"
    assert (set(shard.claimed()), set(shard.queued())) == ({"a"}, {"a", "b"})


def test_after_the_next_claim_it_goes_on(shard, lease):
    shard.push("a")
    rings(shard)
    lease.settle(rest="ack")
    lease.claim()
    listen(shard)
    shard.push("b")
    assert handed(shard)[1:][0] == 2


def test_a_thread_that_does_not_listen_gets_a_ring_only(shard, lease):
    shard.redis.unlink(f"{shard.app.settings.namespace}:{BELL}:idle")
    shard.push("a")
    assert rings(shard) == [shard.prefix + b" 0.000000 0"]
    assert is_in_the_queue(shard, "a")


def test_another_shard_of_the_thread_gets_a_ring_only(app):
    first, second = (ShardDriver(app, index=index, shards_count=2) for index in range(2))
    listening(first)
    listening(second)
    first.push("a")
    second.push("b")
    assert is_in_the_queue(second, "b")
    assert [message.split()[:2] for message in rings(first)] == [[first.prefix, b"0"], [second.prefix, b"0.000000"]]


def test_a_ring_ends_the_listening(shard, lease):
    shard.push("later", perform_in=FUTURE)
    shard.push("a")
    assert is_in_the_queue(shard, "later", "a")


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([("a",), ("b",)], id="several jobs"),
        pytest.param([("a", b"p", "", PAST)], id="with a due time"),
        pytest.param([("a", b"p", 1.0)], id="with a score"),
        pytest.param([("a", b"p" * 16385)], id="a long payload"),
    ],
)
def test_what_goes_through_the_queue(shard, lease, rows):
    shard.push_all(*rows)
    assert is_in_the_queue(shard, *(row[0] for row in rows))
    assert rings(shard) == [shard.prefix + b" 0.000000 1"]


def test_the_longest_payload_that_is_handed_over(shard, lease):
    shard.push("a", b"p" * 16384)
    assert handed(shard)[2][0].payloads == [b"p" * 16384]


def test_a_job_that_is_queued_for_later_merges(shard, lease):
    shard.push("a", perform_in=FUTURE)
    listen(shard)
    shard.push("a", b"2")
    assert is_in_the_queue(shard, "a")


def test_jobs_that_are_due_already_go_first(shard, lease):
    """The thread is about to look by its own clock."""
    shard.push("first", perform_in=shard.now() + 0.001)
    listen(shard)
    shard.redis.hset(shard.key("owner"), "waiting", PAST)
    shard.push("second")
    assert is_in_the_queue(shard, "first", "second")


def test_a_lease_that_has_run_out_gets_nothing(shard, lease):
    shard.redis.hset(shard.key("owner"), "until", PAST)
    shard.push("a")
    assert is_in_the_queue(shard, "a")


@pytest.mark.parametrize("how", ["acquire", "release the claim", "release the lease", "take over"])
def test_an_offer_ends_with_its_claim(shard, lease, how):
    if how == "acquire":
        shard.caller.run(shard.shard.acquire("a", 60, 3, bell=f"{shard.app.settings.namespace}:{BELL}"))
    elif how == "take over":
        shard.lease("b", dead=["a"])
    else:
        lease.release("lease" if "lease" in how else "claim")
    shard.push("a")
    assert is_in_the_queue(shard, "a")


def test_a_claim_that_found_jobs_is_not_open(shard, lease):
    shard.push_all(("a",), ("b",))
    lease.claim(limit=1)
    listen(shard)
    shard.push("c")
    assert (set(shard.claimed()), set(shard.queued())) == ({"a"}, {"b", "c"})


def test_what_is_handed_to_a_node_that_dies_is_restored(shard, lease):
    shard.push("a")
    assert shard.try_acquire("b", dead=["a"]).restored == 1
    assert set(shard.queued()) == {"a"}
    assert shard.crashes() == {"a": 1}


def test_of_what_was_not_heard_the_next_claim_tells(shard, lease):
    """The ring was lost; so that claim is given back, and made anew."""
    shard.push("a")
    with pytest.raises(Unsettled, match=r"^1$"):
        lease.try_claim(number=2)
    lease.release("claim", number=2)
    with pytest.raises(Unsettled, match=r"^1$"):
        lease.try_claim(number=3)
    lease.release("claim", number=1)
    assert [job.id for job in lease.try_claim(number=3).jobs] == ["a"]
    assert shard.crashes() == {}


def test_a_poll_tells_of_what_was_not_heard(shard, lease):
    assert shard.caller.run(peek([shard.shard])) == [None]
    shard.push("a")
    assert shard.caller.run(peek([shard.shard])) == [0.0]
    lease.settle(rest="ack")
    assert shard.caller.run(peek([shard.shard])) == [None]


def test_a_ring_that_nobody_hears_is_forgotten(shard, lease):
    shard.push("a")
    assert 0 < shard.redis.ttl(f"{shard.app.settings.namespace}:{BELL}") <= 60


def test_by_the_doorbell_of_a_node_nothing_is_handed_over(shard):
    """On Cluster, where the list would be out of reach."""
    shard.lease().claim()
    listen(shard)
    shard.push("a")
    assert is_in_the_queue(shard, "a")
