"""Taking in: jobs of another queue, as they were there, also beside what is queued, runs or is blocked here."""

from __future__ import annotations

import pytest

from lowkiq.admin.jobs.taking_in import Incoming, take_in
from lowkiq.errors import InvalidJob, ShardsCountMismatch
from tests.queue.shard_driver import FUTURE, PAST


@pytest.fixture
def taken(app):
    def take(*jobs: Incoming, shards_count: int = 1) -> int:
        shards = app.shards("q", shards_count)
        return take_in(app.caller, shards, jobs, max_id_bytes=512, max_payload_bytes=1 << 20)

    return take


def test_a_job_is_taken_in_as_it_was_and_twice_is_once(shard, taken):
    jobs = [
        Incoming("a", [(2.0, b"2"), (1.0, b"1")], FUTURE, 3, "boom"),
        Incoming("b", [(1.5, b"x")], PAST),
        Incoming("a", [(0.5, b"0")], PAST, error="dead", is_dead=True),
    ]
    assert taken(*jobs) == 3
    before, dead, errors = shard.queued(), shard.morgue(), shard.errors()
    assert before["a"].payloads == {b"1": 1.0, b"2": 2.0}
    assert (before["a"].perform_in, before["b"].perform_in) == (FUTURE, PAST)
    assert errors["a"] == "boom"
    assert taken(*jobs) == 3
    assert (shard.queued(), shard.morgue(), shard.errors()) == (before, dead, errors)
    assert not [key for key in shard.names() if key.startswith("undo:")]
    assert all(shard.redis.ttl(shard.key(key)) == -1 for key in shard.names())


def test_it_merges_with_what_is_queued_here(shard, taken):
    shard.push_all(("a", b"1", 5.0, PAST), ("a", b"3", 3.0, PAST))
    assert taken(Incoming("a", [(1.0, b"1"), (2.0, b"2")], PAST)) == 1
    assert shard.queued()["a"].payloads == {b"1": 5.0, b"2": 2.0, b"3": 3.0}


def test_it_waits_for_a_run_of_its_id(shard, taken):
    shard.push("a", b"2", 2.0, perform_in=PAST)
    lease = shard.lease()
    lease.claim()
    taken(Incoming("a", [(1.0, b"1")], PAST))
    assert lease.claim_beside() == []
    lease.settle(1, acked=["a"])
    assert [job.id for job in lease.claim_beside()] == ["a"]


def test_very_many_payloads_of_an_id_are_taken_in_parts(shard, taken):
    payloads = [(float(number), b"%d" % number) for number in range(2_500)]
    assert taken(Incoming("a", payloads, PAST)) == 3
    assert len(shard.queued()["a"].payloads) == 2_500


@pytest.mark.parametrize(
    ("job", "told"),
    [
        (Incoming("", [(1.0, b"x")], PAST), "id must not be empty"),
        (Incoming("x" * 513, [(1.0, b"x")], PAST), "max_id_bytes"),
        (Incoming("b", [], PAST), "has no payload"),
        (Incoming("b", [(float("nan"), b"x")], PAST), "must be finite"),
        (Incoming("b", [(1.0, b"x")], float("inf")), "must be finite"),
        (Incoming("b", [(1.0, b"x" * ((1 << 20) + 1))], PAST), "there may be"),
    ],
)
def test_what_can_t_be_is_refused_before_anything_is_written(shard, taken, job, told):
    with pytest.raises(InvalidJob, match=told):
        taken(Incoming("a", [(1.0, b"x")], PAST), job)
    assert shard.queued() == {}


def test_another_shards_count_changes_nothing(shard, taken):
    shard.push("b", b"x", perform_in=PAST)
    before = shard.queued()
    with pytest.raises(ShardsCountMismatch):
        taken(*(Incoming(f"{n}", [(1.0, b"x")], PAST) for n in range(20)), shards_count=2)
    assert shard.queued() == before


@pytest.mark.parametrize("payloads", [[(5.0, b"p")], [(5.0, b"p"), (6.0, b"q")]], ids=["one", "several"])
@pytest.mark.parametrize("where", ["queue", "morgue"])
def test_what_is_laid_out_is_what_a_deletion_would_have_kept(shard, where, payloads):
    for score, payload in payloads:
        shard.push("a", payload, score, perform_in=PAST)
    lease = shard.lease()
    lease.claim()
    lease.fail("a", retry_count=3, delay=1000, error="boom")
    if where == "morgue":
        shard.actions.bury(["a"])
    index = shard.key("due" if where == "queue" else "morgue")
    at = shard.redis.eval("return redis.call('ZSCORE', KEYS[1], 'a')", 1, index)  # as text
    words = [at, 3 if where == "queue" else "", "boom"]
    shard.call("put_away", shard.shard.layout, where, "0" * 16, 60, "a")
    shard.call("lay_out", shard.shard.layout, "1" * 16, 60, "a", where, *words, *(x for one in payloads for x in one))
    kept = [shard.redis.hgetall(shard.key(f"undo:{digit * 16}")) for digit in "01"]
    assert kept[0] == kept[1]
    zsets = [shard.redis.zrange(shard.key(f"undo:{digit * 16}:a"), 0, -1, withscores=True) for digit in "01"]
    assert zsets[0] == zsets[1]
    assert all(0 < shard.redis.ttl(shard.key(key)) <= 60 for key in shard.names() if key.startswith("undo:1"))
