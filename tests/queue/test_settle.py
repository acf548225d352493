"""settle: what the model of a shard doesn't decide, by number, by size, and of who asks for what there isn't."""

from __future__ import annotations

import pytest

from lowkiq.queue.claims import Spoiled
from lowkiq.queue.shard import Exhausted, Failure, Settled, Snoozed
from tests.queue.look import Dead
from tests.queue.shard_driver import FUTURE, PAST


@pytest.fixture
def lease(shard):
    return shard.lease()


def counts(settled: Settled) -> tuple[int, int, int]:
    return settled.acked, settled.failed, settled.buried


@pytest.mark.parametrize("has_several", [True, False])
@pytest.mark.parametrize("history", ["none", "errors", "crashes"])
def test_the_rest_can_be_acked_without_being_named(shard, lease, has_several, history):
    shard.push_all(("a", b"x", 1.0, PAST), ("b", b"x", 1.0, PAST), ("c", b"x", 1.0, PAST))
    if has_several:
        shard.push("c", b"y", 2.0)
    if history == "errors":
        lease.claim()
        lease.settle(failed=[Failure("b", 0, 0, "boom")], rest="release")
    lease.claim()
    if history == "crashes":
        shard.redis.hset(shard.key("crashes"), "b", 1)
    assert counts(lease.settle(failed=[Failure("a", 0, 60, "boom")], rest="ack", has_several=has_several)) == (2, 1, 0)
    assert list(shard.queued()) == ["a"]
    assert shard.names() == {"meta", "owner", "due", "payloads", "retries", "errors"}
    assert shard.errors() == {"a": "boom"}


@pytest.mark.parametrize("count", [1, 3])
def test_a_whole_claim_can_be_acked_without_a_name(shard, lease, count):
    """With no error or crash in the shard, the ids are not even read."""
    shard.push_payloads("a", count)
    shard.push_payloads("b", 1)
    lease.claim()
    assert counts(lease.settle(rest="ack", has_several=count > 1)) == (2, 0, 0)
    assert shard.names() == {"meta", "owner"}


@pytest.mark.parametrize("claimed", [1, 3])
@pytest.mark.parametrize("queued", [1, 3])
@pytest.mark.parametrize("offset", [-1.0, 0.0, 1.0])
def test_equal_payloads_keep_the_higher_score_when_a_job_returns(shard, lease, claimed, queued, offset):
    """In each pair of forms, one payload or several."""
    shard.push_payloads("a", claimed)
    lease.claim()
    shard.push_all(*(("a", b"%d" % n, n + offset) for n in range(queued)))
    lease.fail("a")
    assert shard.queued()["a"].payloads == {
        b"%d" % n: max([float(n)] * (n < claimed) + [n + offset] * (n < queued)) for n in range(max(claimed, queued))
    }


def test_many_failed_payloads_return(shard, lease):
    shard.push_payloads("a", 1000)
    lease.claim()
    shard.push_payloads("a", 1000, 500)
    lease.fail("a")
    assert shard.queued()["a"].payloads == {b"%d" % n: float(n) for n in range(1500)}


OUTCOMES = {
    "acked": {"acked": ["a", "b"]},
    "released": {"released": ["a", "b"]},
    "failed": {"failed": [Failure("a", 0, 60, "e"), Failure("b", 0, 60, "e")]},
    "exhausted": {"exhausted": [Exhausted("a", "e"), Exhausted("b", "e")]},
    "spoiled": {"spoiled": [Spoiled("a", b"x", "e"), Spoiled("b", b"0", "e")]},
    "rest acked": {"rest": "ack"},
    "rest acked, one each": {"rest": "ack", "has_several": False},
    "rest released": {"rest": "release"},
}


@pytest.mark.parametrize("outcome", OUTCOMES.values(), ids=list(OUTCOMES))
def test_a_late_duplicate_and_a_repeated_settle_change_nothing(shard, lease, outcome):
    """The jobs of the later claim have the same ids, and equal payloads."""
    for _ in range(2):
        lease.settle(rest="ack")
        shard.push("a", b"x", 1.0, PAST)
        shard.push_payloads("b", 3)
        lease.claim()
    before = shard.jobs()
    assert counts(lease.settle(number=1, **outcome)) == (0, 0, 0)
    assert shard.jobs() == before
    lease.settle(**outcome)
    before = shard.jobs()
    assert counts(lease.settle(**outcome)) == (0, 0, 0)
    assert shard.jobs() == before


def test_ids_that_are_not_in_the_claim_are_skipped(shard, lease):
    shard.push("queued", b"x", 1.0, FUTURE)
    shard.push("mine", b"x", 1.0, PAST)
    lease.claim()
    before = shard.jobs()
    settled = lease.settle(
        acked=["queued", "ghost"],
        released=["queued"],
        failed=[Failure("queued", 3, 0, "e")],
        exhausted=[Exhausted("queued", "e"), Exhausted("ghost", "e")],
        spoiled=[Spoiled("queued", b"x", "e"), Spoiled("mine", b"another", "e")],
    )
    assert counts(settled) == (0, 0, 0)
    assert shard.jobs() == before


def test_an_id_named_twice_counts_once(shard, lease):
    shard.push("a")
    lease.claim()
    assert counts(lease.settle(acked=["a", "a"], failed=[Failure("a", 0, 0, "e")])) == (1, 0, 0)


def test_all_outcomes_fit_one_settle(shard, lease):
    shard.push_all(*((id, b"x", 1.0, PAST) for id in ("acked", "released", "failed", "exhausted", "spoiled", "rest")))
    lease.claim()
    settled = lease.settle(
        acked=["acked"],
        released=["released"],
        failed=[Failure("failed", 0, 60, "e")],
        exhausted=[Exhausted("exhausted", "e")],
        spoiled=[Spoiled("spoiled", b"x", "e")],
        rest="ack",
    )
    assert counts(settled) == (2, 3, 2)
    assert set(shard.queued()) == {"released", "failed"}
    assert set(shard.morgue()) == {"exhausted", "spoiled"}
    assert (shard.meta("processed"), shard.meta("failed")) == (2, 3)
    assert shard.claimed() == {}


@pytest.mark.parametrize("outcome", [{"rest": "ack"}, {"rest": "release"}])
def test_a_thousand_jobs_fit_one_settle(shard, lease, outcome):
    shard.push_all(*((f"id-{n}", b"x", 1.0, PAST) for n in range(1000)))
    lease.claim()
    lease.settle(**outcome)
    assert shard.claimed() == {}
    assert len(shard.queued()) == (1000 if outcome == {"rest": "release"} else 0)


def test_a_thousand_named_outcomes_fit_one_settle(shard, lease):
    shard.push_all(*((f"id-{n}", b"x", 1.0, PAST) for n in range(1000)))
    lease.claim()
    settled = lease.settle(failed=[Failure(f"id-{n}", 1, 60, "e") for n in range(1000)])
    assert counts(settled) == (0, 1000, 0)
    assert {job.retry_count for job in shard.queued().values()} == {1}


@pytest.mark.parametrize("claimed", [2, 3])
@pytest.mark.parametrize("queued", [[b"1"], [b"0"], [b"new"], [b"0", b"1", b"new"]])
def test_the_rest_of_an_exhausted_job_merges_with_the_queue(shard, lease, claimed, queued):
    shard.push_payloads("a", claimed)
    lease.claim()
    shard.push_all(*(("a", payload, 50.0, FUTURE) for payload in queued))
    lease.exhaust("a")
    rest = {b"%d" % n: float(n) for n in range(1, claimed)}
    job = shard.queued()["a"]
    assert job.payloads == rest | dict.fromkeys(queued, 50.0)
    assert job.retry_count == -1
    assert job.perform_in <= shard.now()


def test_several_spoiled_payloads_of_an_id_all_go_to_the_morgue(shard, lease):
    shard.push_all(("a", b"\xfe", 1.0), ("a", b"\xff", 2.0))
    lease.claim()
    bad = [Spoiled("a", b"\xfe", "first"), Spoiled("a", b"\xff", "second")]
    assert counts(lease.settle(spoiled=bad, released=["a"])) == (0, 2, 2)
    assert shard.morgue() == {"a": Dead({b"\xfe": 1.0, b"\xff": 2.0}, "second")}
    assert shard.names() == {"meta", "owner", "morgue", "morgue:payloads", "morgue:payloads:a", "morgue:errors"}


@pytest.mark.parametrize(("kind", "suspects"), [("limited", {"a": 1}), ("snoozed", {})])
def test_a_job_that_its_rate_put_back_has_not_run_and_is_suspected_as_before(shard, kind, suspects):
    """Else a deadly job with a rate would be acquitted again and again."""
    shard.push("a")
    shard.lease("a").claim()
    lease = shard.lease("b", dead=["a"])
    assert shard.crashes() == {"a": 1}
    lease.claim()
    lease.settle(**{kind: [Snoozed("a", 0.0, kind)]})
    assert shard.crashes() == suspects
