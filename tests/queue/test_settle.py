"""settle: acked, failed, released, exhausted and spoiled jobs of a claim, and the rules by which they come back."""

from __future__ import annotations

import pytest

from lowkiq.errors import Fenced
from lowkiq.queue.claims import Spoiled
from lowkiq.queue.shard import Exhausted, Failure, Settled
from tests.queue.shard_driver import FUTURE, PAST, Claimed, Dead, Queued


@pytest.fixture
def lease(shard):
    return shard.lease()


def counts(settled: Settled) -> tuple[int, int, int]:
    return settled.acked, settled.failed, settled.buried


# ── acked ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("count", [1, 3])
def test_an_acked_job_is_gone(shard, lease, count):
    shard.push_payloads("a", count)
    lease.claim()
    assert counts(lease.ack("a")) == (1, 0, 0)
    assert shard.names() == {"meta", "owner"}
    assert shard.meta("processed") == 1


def test_an_ack_forgets_errors_and_crashes(shard, lease):
    shard.push("a")
    lease.claim()
    lease.fail("a", delay=0)
    lease.claim()
    lease = shard.lease("b", dead=["a"])
    assert (shard.errors(), shard.crashes()) == ({"a": "boom"}, {"a": 1})
    lease.claim()
    lease.ack("a")
    assert (shard.errors(), shard.crashes()) == ({}, {})


def test_an_ack_leaves_what_was_queued_meanwhile(shard, lease):
    shard.push("a", b"x", 1.0, PAST)
    lease.claim()
    shard.push("a", b"x", 1.0, FUTURE)
    lease.ack("a")
    assert shard.queued() == {"a": Queued({b"x": 1.0}, FUTURE)}


def test_jobs_not_named_stay_in_the_claim(shard, lease):
    shard.push_all(("a", b"x", 1.0, PAST), ("b", b"x", 1.0, PAST))
    lease.claim()
    lease.ack("a")
    assert shard.claimed() == {"b": Claimed({b"x": 1.0}, PAST)}


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


# ── failed ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("count", [1, 3])
def test_a_failed_job_returns_with_its_retry_count_delay_and_error(shard, lease, count):
    shard.push_payloads("a", count)
    lease.claim()
    before = shard.now()
    assert counts(lease.fail("a", retry_count=4, delay=100.5, error="boom: ü")) == (0, 1, 0)
    job = shard.queued()["a"]
    assert job == Queued({b"%d" % n: float(n) for n in range(count)}, job.perform_in, 4, "boom: ü")
    assert before + 100.5 <= job.perform_in <= shard.now() + 100.5
    assert shard.claimed() == {}
    assert shard.meta("failed") == 1


def test_a_failed_job_merged_with_a_queued_one_brings_its_perform_in_and_retry_count(shard, lease):
    shard.push("a", b"x", 1.0, PAST)
    lease.claim()
    shard.push("a", b"y", 2.0, PAST)
    lease.fail("a", retry_count=2, delay=1000)
    job = shard.queued()["a"]
    assert job.payloads == {b"x": 1.0, b"y": 2.0}
    assert job.retry_count == 2
    assert job.perform_in == pytest.approx(shard.now() + 1000, abs=30)


@pytest.mark.parametrize("claimed", [1, 3])
@pytest.mark.parametrize("queued", [1, 3])
@pytest.mark.parametrize("offset", [-1.0, 0.0, 1.0])
def test_equal_payloads_keep_the_lower_score_when_a_job_returns(shard, lease, claimed, queued, offset):
    """In each pair of forms, one payload or several."""
    shard.push_payloads("a", claimed)
    lease.claim()
    shard.push_all(*(("a", b"%d" % n, n + offset) for n in range(queued)))
    lease.fail("a")
    assert shard.queued()["a"].payloads == {
        b"%d" % n: min([float(n)] * (n < claimed) + [n + offset] * (n < queued)) for n in range(max(claimed, queued))
    }


def test_a_failure_forgets_crashes(shard):
    """It had an outcome: its node did not die of it."""
    shard.push("a")
    shard.lease("a").claim()
    lease = shard.lease("b", dead=["a"])
    lease.claim()
    lease.fail("a")
    assert shard.crashes() == {}


def test_a_later_error_replaces_the_one_before(shard, lease):
    shard.push("a")
    for error in ("first", "second"):
        lease.claim()
        lease.fail("a", delay=0, error=error)
    assert shard.queued()["a"].error == "second"


def test_many_failed_payloads_return(shard, lease):
    shard.push_payloads("a", 1000)
    lease.claim()
    shard.push_payloads("a", 1000, 500)
    lease.fail("a")
    assert shard.queued()["a"].payloads == {b"%d" % n: float(n) for n in range(1500)}


# ── released ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("how", ["named", "rest"])
@pytest.mark.parametrize("count", [1, 3])
def test_a_released_job_is_as_it_was(shard, lease, how, count):
    shard.push_payloads("a", count)
    lease.claim()
    lease.fail("a", retry_count=5, delay=0.0)
    queued = shard.queued()
    lease.claim()
    released = lease.settle(released=["a"]) if how == "named" else lease.settle(rest="release")
    assert counts(released) == (0, 0, 0)
    assert shard.queued() == queued
    assert shard.crashes() == {}


def test_a_released_job_merged_with_a_queued_one_brings_its_perform_in_and_retry_count(shard, lease):
    shard.push("a", b"x", 1.0, PAST)
    lease.claim()
    lease.fail("a", retry_count=5, delay=-FUTURE)
    perform_in = shard.queued()["a"].perform_in
    lease.claim()
    shard.push("a", b"y", 2.0, FUTURE)
    lease.settle(released=["a"])
    assert shard.queued() == {"a": Queued({b"x": 1.0, b"y": 2.0}, perform_in, 5, "boom")}


def test_a_release_of_a_fresh_job_is_fresh(shard, lease):
    shard.push("a", b"x", 1.0, PAST)
    lease.claim()
    shard.push("a", b"y", 2.0, FUTURE)
    lease.settle(released=["a"])
    assert shard.queued() == {"a": Queued({b"x": 1.0, b"y": 2.0}, PAST)}


# ── the number of the claim ─────────────────────────────────────────────────────────────────────────────────────────

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


def fill(shard):
    shard.push("a", b"x", 1.0, PAST)
    shard.push_payloads("b", 3)


@pytest.mark.parametrize("outcome", OUTCOMES.values(), ids=list(OUTCOMES))
def test_a_repeated_settle_counts_nothing_and_changes_nothing(shard, lease, outcome):
    fill(shard)
    lease.claim()
    lease.settle(**outcome)
    before = shard.dump()
    assert counts(lease.settle(**outcome)) == (0, 0, 0)
    assert shard.dump() == before


@pytest.mark.parametrize("outcome", OUTCOMES.values(), ids=list(OUTCOMES))
def test_a_late_duplicate_of_an_earlier_settle_changes_nothing(shard, lease, outcome):
    """The jobs of the later claim have the same ids, and equal payloads."""
    fill(shard)
    lease.claim()
    lease.settle(rest="ack")
    fill(shard)
    lease.claim()
    before = shard.jobs()
    assert counts(lease.settle(number=1, **outcome)) == (0, 0, 0)
    assert shard.jobs() == before


@pytest.mark.parametrize("outcome", OUTCOMES.values(), ids=list(OUTCOMES))
@pytest.mark.parametrize("stale", ["node", "epoch"])
def test_a_settle_of_who_does_not_own_the_shard_changes_nothing(shard, lease, outcome, stale):
    fill(shard)
    lease.claim()
    setattr(lease, stale, "1")
    before = shard.dump()
    with pytest.raises(Fenced):
        lease.settle(**outcome)
    assert shard.dump() == before


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


def test_a_settle_tells_the_oldest_due_time(shard, lease):
    shard.push("a")
    lease.claim()
    assert lease.fail("a", delay=500).due_in == pytest.approx(500, abs=5)
    assert lease.settle().due_in == pytest.approx(500, abs=30)


def test_a_settle_of_an_emptied_queue_has_no_due_time(shard, lease):
    shard.push("a")
    lease.claim()
    assert lease.ack("a").due_in is None


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


# ── exhausted and spoiled ───────────────────────────────────────────────────────────────────────────────────────────


def test_an_exhausted_job_of_one_payload_goes_to_the_morgue(shard, lease):
    shard.push("a", b"x", 1.0)
    lease.claim()
    before = shard.now()
    assert counts(lease.exhaust("a", "gave up")) == (0, 1, 1)
    assert shard.morgue() == {"a": Dead({b"x": 1.0}, "gave up")}
    assert before <= shard.redis.zscore(shard.key("morgue"), "a") <= shard.now()
    assert shard.queued() == shard.claimed() == {}


@pytest.mark.parametrize("count", [2, 3, 5])
def test_of_an_exhausted_job_the_lowest_payload_dies_and_the_rest_starts_anew(shard, lease, count):
    shard.push_payloads("a", count)
    lease.claim()
    lease.fail("a", retry_count=24, delay=0)
    lease.claim()
    before = shard.now()
    lease.exhaust("a")
    assert shard.morgue()["a"].payloads == {b"0": 0.0}
    job = shard.queued()["a"]
    assert (job.payloads, job.retry_count, job.error) == ({b"%d" % n: float(n) for n in range(1, count)}, -1, None)
    assert before <= job.perform_in <= shard.now()


@pytest.mark.parametrize("claimed", [2, 3])
@pytest.mark.parametrize("queued", [[b"1"], [b"0"], [b"new"], [b"0", b"1", b"new"]])
def test_the_rest_of_an_exhausted_job_merges_with_the_queue(shard, lease, claimed, queued):
    shard.push_payloads("a", claimed)
    lease.claim()
    shard.push_all(*(("a", payload, 50.0, FUTURE) for payload in queued))
    lease.exhaust("a")
    rest = {b"%d" % n: float(n) for n in range(1, claimed)}
    job = shard.queued()["a"]
    assert job.payloads == dict.fromkeys(queued, 50.0) | rest
    assert job.retry_count == -1
    assert job.perform_in <= shard.now()


def test_an_exhausted_job_of_one_payload_leaves_what_was_queued_meanwhile(shard, lease):
    shard.push("a", b"x", 1.0, PAST)
    lease.claim()
    shard.push("a", b"y", 2.0, FUTURE)
    lease.exhaust("a")
    assert shard.queued() == {"a": Queued({b"y": 2.0}, FUTURE)}


def test_a_spoiled_payload_goes_to_the_morgue_raw_and_the_rest_returns(shard, lease):
    shard.push_all(("a", b"1", 1.0, PAST), ("a", b"\xff", 2.0), ("a", b"3", 3.0))
    lease.claim()
    lease.fail("a", retry_count=2, delay=0)
    perform_in = shard.queued()["a"].perform_in
    lease.claim()
    assert counts(lease.spoil("a", b"\xff", "can't be read", released=["a"])) == (0, 1, 1)
    assert shard.morgue() == {"a": Dead({b"\xff": 2.0}, "can't be read")}
    assert shard.queued() == {"a": Queued({b"1": 1.0, b"3": 3.0}, perform_in, 2, "boom")}


def test_one_payload_beside_a_spoiled_one_returns(shard, lease):
    shard.push_all(("a", b"\xff", 1.0, PAST), ("a", b"2", 2.0))
    lease.claim()
    lease.spoil("a", b"\xff")
    assert shard.claimed() == {"a": Claimed({b"2": 2.0}, PAST)}
    lease.settle(released=["a"])
    assert shard.queued() == {"a": Queued({b"2": 2.0}, PAST)}


def test_a_spoiled_job_of_one_payload_is_gone_from_the_claim(shard, lease):
    shard.push("a", b"\xff", 1.0)
    lease.claim()
    lease.spoil("a", b"\xff", released=["a"])
    assert shard.morgue()["a"].payloads == {b"\xff": 1.0}
    assert shard.queued() == shard.claimed() == {}


def test_several_spoiled_payloads_of_an_id_all_go_to_the_morgue(shard, lease):
    shard.push_all(("a", b"\xfe", 1.0), ("a", b"\xff", 2.0))
    lease.claim()
    bad = [Spoiled("a", b"\xfe", "first"), Spoiled("a", b"\xff", "second")]
    assert counts(lease.settle(spoiled=bad, released=["a"])) == (0, 2, 2)
    assert shard.morgue() == {"a": Dead({b"\xfe": 1.0, b"\xff": 2.0}, "second")}
    assert shard.names() == {"meta", "owner", "morgue", "morgue:payloads", "morgue:payloads:a", "morgue:errors"}


@pytest.mark.parametrize("score", [1.0, 3.0])
def test_equal_payloads_keep_the_lower_score_in_the_morgue(shard, lease, score):
    for each in (2.0, score):
        shard.push("a", b"x", each)
        lease.claim()
        lease.exhaust("a")
    assert shard.morgue()["a"].payloads == {b"x": min(2.0, score)}


def test_the_morgue_collects_payloads_of_an_id(shard, lease):
    shard.push_payloads("a", 3)
    for _ in range(3):
        lease.claim()
        lease.exhaust("a")
    assert shard.morgue()["a"].payloads == {b"0": 0.0, b"1": 1.0, b"2": 2.0}
    assert shard.queued() == {}
