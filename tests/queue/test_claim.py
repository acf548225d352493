"""claim: what a node takes into its hands."""

from __future__ import annotations

import pytest

from lowkiq.errors import Fenced, ShardsCountMismatch, StaleClaim, Unsettled
from lowkiq.queue.shard import MAX_CLAIM, MAX_CLAIM_BYTES
from tests.queue.shard_driver import FUTURE, PAST, Claimed, Queued, ShardDriver


def ids(jobs):
    return [job.id for job in jobs]


def test_due_jobs_are_taken_oldest_first(shard):
    for n in (3, 1, 2):
        shard.push(f"id-{n}", perform_in=PAST + n)
    assert ids(shard.lease().claim()) == ["id-1", "id-2", "id-3"]


def test_jobs_that_are_not_due_stay(shard):
    shard.push("later", b"x", 1.0, FUTURE)
    claim = shard.lease().try_claim()
    assert claim.jobs == []
    assert claim.due_in == pytest.approx(FUTURE - shard.now(), abs=5)
    assert shard.queued() == {"later": Queued({b"x": 1.0}, FUTURE)}


def test_a_job_that_was_pushed_just_now_is_due(shard):
    shard.push("a")
    assert ids(shard.lease().claim()) == ["a"]


@pytest.mark.parametrize("limit", [1, 15, 16, 17, 40])
@pytest.mark.parametrize("due", [0, 1, 15, 16, 17, 40])
def test_few_jobs_and_many_are_found_alike(shard, due, limit):
    """A queue that may hold few is read in another way than one that holds many."""
    rows = [(f"due-{n:02}", b"x", 1.0, PAST + n) for n in range(due)]
    shard.push_all(*rows, *((f"later-{n}", b"x", 1.0, FUTURE + n) for n in range(3)))
    claim = shard.lease().try_claim(limit)
    taken = min(due, limit)
    assert ids(claim.jobs) == [f"due-{n:02}" for n in range(taken)]
    next_due = PAST + taken if taken < due else FUTURE
    assert claim.due_in == pytest.approx(next_due - shard.now(), abs=30)
    assert len(shard.queued()) == due + 3 - taken


@pytest.mark.parametrize("count", [4, 40])
def test_fresh_jobs_keep_their_due_times_however_old_they_are(shard, clock, count):
    """A record tells the last bits of it: what came half an hour or more before the claim's last job is asked for."""
    due = {}
    for n in range(count):
        shard.push(f"id-{n:02}", b"x")
        due[f"id-{n:02}"] = clock.now / 1e6
        clock.step(2**31 * 4 // count + n % 2)
    queued = {id: Queued({b"x": at}, at) for id, at in due.items()}
    assert shard.queued() == queued
    jobs = shard.lease("a").claim()
    assert [(job.id, job.perform_in, job.scores) for job in jobs] == [(id, at, (at,)) for id, at in due.items()]
    assert shard.claimed() == {id: Claimed({b"x": at}, at) for id, at in due.items()}
    shard.lease("b", dead=["a"])
    assert shard.queued() == queued


@pytest.mark.parametrize("apart", [0, 1, 2**31 - 1, 2**31, 2**31 + 1])
def test_two_fresh_jobs_keep_their_due_times(shard, clock, apart):
    shard.push("first")
    first = clock.now
    clock.step(apart)
    shard.push("second")
    jobs = shard.lease().claim()
    assert [round(job.perform_in * 1e6) for job in jobs] == [first, first + max(apart, 1)]
    assert [claimed.perform_in for claimed in shard.claimed().values()] == [job.perform_in for job in jobs]


def test_an_empty_queue_has_no_due_time(shard):
    assert shard.lease().try_claim().due_in is None


def test_the_due_time_is_that_of_the_oldest_job_left(shard):
    shard.push("first", perform_in=PAST)
    shard.push("second", perform_in=PAST + 1)
    assert shard.lease().try_claim(limit=1).due_in == pytest.approx(PAST + 1 - shard.now(), abs=5)


def test_payloads_come_from_low_to_high_score(shard):
    for score in (3.0, 1.0, 2.0, -7.5, 10.0):
        shard.push("a", b"%d" % score, score)
    (job,) = shard.lease().claim()
    assert job.scores == (-7.5, 1.0, 2.0, 3.0, 10.0)
    assert job.payloads == [b"-7", b"1", b"2", b"3", b"10"]


def test_a_claimed_job_brings_what_it_was_queued_with(shard):
    shard.push("a", b"x", 1.5, PAST + 0.123457)
    shard.push("b", b"x", 1.5, PAST + 1)
    shard.push("b", b"y", 2.5)
    a, b = shard.lease().claim()
    assert (a.perform_in, a.retry_count, a.scores) == (PAST + 0.123457, -1, (1.5,))
    assert (b.perform_in, b.retry_count, b.scores) == (PAST + 1, -1, (1.5, 2.5))


@pytest.mark.parametrize("several", [False, True])
def test_a_retried_job_brings_its_retry_count(shard, several):
    shard.push_payloads("a", 1 + several)
    lease = shard.lease()
    lease.claim()
    lease.fail("a", retry_count=7, delay=0)
    (job,) = lease.claim()
    assert job.retry_count == 7


def test_what_is_claimed_has_left_the_queue(shard):
    shard.push("a", b"x", 1.0, PAST)
    shard.push_payloads("b", 2)
    shard.lease().claim()
    assert shard.queued() == {}
    assert shard.claimed() == {"a": Claimed({b"x": 1.0}, PAST), "b": Claimed({b"0": 0.0, b"1": 1.0}, PAST)}


def test_a_claim_takes_at_most_its_limit(shard):
    shard.push_all(*((f"id-{n}", b"x", 1.0, PAST + n) for n in range(5)))
    assert ids(shard.lease().claim(limit=3)) == ["id-0", "id-1", "id-2"]
    assert list(shard.queued()) == ["id-3", "id-4"]


def test_a_claim_takes_at_most_a_thousand_jobs(shard):
    for part in range(2):
        shard.push_all(*((f"{part}-{n:04}", b"x", 1.0, PAST) for n in range(600)))
    assert len(shard.lease().claim(limit=5000)) == MAX_CLAIM == 1000
    assert len(shard.queued()) == 200


# ── max_payloads ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_lowest_payloads_are_taken_and_the_rest_stays_in_its_place(shard):
    shard.push_payloads("a", 7)
    lease = shard.lease()
    (job,) = lease.claim(max_payloads=3)
    assert job.payloads == [b"0", b"1", b"2"]
    assert shard.queued() == {"a": Queued({b"3": 3.0, b"4": 4.0, b"5": 5.0, b"6": 6.0}, PAST)}
    lease.ack("a")
    (job,) = lease.claim(max_payloads=3)
    assert job.payloads == [b"3", b"4", b"5"]


def test_one_payload_left_goes_back_into_the_hash(shard):
    shard.push_payloads("a", 4)
    shard.lease().claim(max_payloads=3)
    assert shard.queued() == {"a": Queued({b"3": 3.0}, PAST)}
    assert "payloads:a" not in shard.names()


def test_a_job_of_exactly_max_payloads_is_taken_whole(shard):
    shard.push_payloads("a", 3)
    assert len(shard.lease().claim(max_payloads=3)[0].payloads) == 3
    assert shard.queued() == {}


def test_payloads_can_be_taken_one_by_one(shard):
    shard.push_payloads("a", 3)
    lease = shard.lease()
    for n in range(3):
        (job,) = lease.claim(max_payloads=1)
        assert job.payloads == [b"%d" % n]
        assert shard.claimed() == {"a": Claimed({b"%d" % n: float(n)}, PAST)}
        lease.ack("a")
    assert shard.queued() == {}


def test_a_thousand_lowest_of_more_payloads_are_taken(shard):
    for first in (0, 1000):
        shard.push_payloads("a", 1000, first)
    shard.push_payloads("a", 1, 2000)
    lease = shard.lease()
    (job,) = lease.claim()
    assert job.scores == tuple(map(float, range(1000)))
    lease.release("claim")
    assert len(shard.queued()["a"].payloads) == 2001


def test_what_stays_of_a_failed_job_is_fresh_and_merges_with_it_again(shard):
    """The retry_count is that of the payloads that were tried."""
    shard.push_payloads("a", 5)
    lease = shard.lease()
    lease.claim()
    lease.fail("a", retry_count=2, delay=-FUTURE)
    perform_in = shard.queued()["a"].perform_in
    lease.claim(max_payloads=3)
    assert shard.queued() == {"a": Queued({b"3": 3.0, b"4": 4.0}, perform_in, -1, "boom")}
    lease.fail("a", retry_count=3, delay=0, error="again")
    assert shard.queued()["a"].payloads == {b"%d" % n: float(n) for n in range(5)}
    assert (shard.queued()["a"].retry_count, shard.queued()["a"].error) == (3, "again")


def test_max_payloads_limits_each_job_not_the_whole_claim(shard):
    shard.push_payloads("a", 3)
    shard.push_payloads("b", 3)
    shard.push("c", b"x", 1.0, PAST + 1)
    jobs = shard.lease().claim(max_payloads=2)
    assert [len(job.payloads) for job in jobs] == [2, 2, 1]


# ── bytes ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_claim_is_full_after_so_many_bytes(shard):
    payload = bytes(MAX_CLAIM_BYTES // 4 + 1)
    for n in range(8):
        shard.push(f"id-{n}", payload, 1.0, PAST + n)
    lease = shard.lease()
    assert ids(lease.claim()) == ["id-0", "id-1", "id-2", "id-3"]
    lease.settle(rest="ack")
    assert ids(lease.claim()) == ["id-4", "id-5", "id-6", "id-7"]


def test_a_payload_larger_than_a_claim_is_taken_alone(shard):
    shard.push("large", bytes(MAX_CLAIM_BYTES + 1), 1.0, PAST)
    shard.push("small", b"x", 1.0, PAST + 1)
    assert ids(shard.lease().claim()) == ["large"]
    assert list(shard.queued()) == ["small"]


def test_payloads_of_one_id_count_too(shard):
    for n in range(4):
        shard.push("a", b"%d" % n + bytes(MAX_CLAIM_BYTES // 4), float(n), PAST)
    shard.push("b", b"x", 1.0, PAST + 1)
    assert ids(shard.lease().claim()) == ["a"]


def test_a_job_is_cut_where_the_claim_is_full_of_bytes(shard):
    """Or an id with many large payloads would make a reply too large ever to arrive."""
    quarter = bytes(MAX_CLAIM_BYTES // 4 + 1)
    for n in range(10):
        shard.push("a", b"%d" % n + quarter, float(n), PAST)
    lease = shard.lease()
    taken = []
    while jobs := lease.claim():
        taken.append([int(payload[:1]) for payload in jobs[0].payloads])
        lease.ack("a")
    assert taken == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_a_job_is_cut_behind_what_earlier_jobs_have_left_of_the_bytes(shard):
    half = bytes(MAX_CLAIM_BYTES // 2 + 1)
    shard.push("first", half, 1.0, PAST)
    shard.push_all(*(("second", b"%d" % n + half, float(n), PAST + 1) for n in range(3)))
    first, second = shard.lease().claim()
    assert (first.id, second.scores) == ("first", (0.0,))
    assert list(shard.queued()["second"].payloads.values()) == [1.0, 2.0]


# ── refusals ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_claim_while_the_last_one_is_unsettled_is_refused(shard):
    shard.push("a", perform_in=PAST)
    shard.push("b", perform_in=PAST + 1)
    lease = shard.lease()
    lease.claim(limit=1)
    before = shard.dump()
    with pytest.raises(Unsettled):
        lease.claim()
    assert shard.dump() == before
    lease.ack("a")
    assert ids(lease.claim()) == ["b"]


def test_a_partly_settled_claim_is_unsettled(shard):
    shard.push_all(("a",), ("b",))
    lease = shard.lease()
    lease.claim()
    lease.ack("a")
    with pytest.raises(Unsettled):
        lease.claim()


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_claim_with_a_number_that_is_not_new_is_refused(shard, number):
    lease = shard.lease()
    lease.try_claim(number=2)
    shard.push("a")
    before = shard.dump()
    with pytest.raises(StaleClaim, match="claim 2 came later"):
        lease.try_claim(number=number)
    assert shard.dump() == before


def test_a_claim_that_arrives_after_it_was_given_up_is_refused(shard):
    """Its connection died with the claim on its way; the node gave it up by its number on another one."""
    shard.push("a", b"x", 1.0, PAST)
    lease = shard.lease()
    lease.release("claim", number=1)
    before = shard.dump()
    with pytest.raises(StaleClaim):
        lease.try_claim(number=1)
    assert shard.dump() == before
    assert ids(lease.try_claim(number=2).jobs) == ["a"]


def test_a_repeated_claim_whose_reply_was_lost_takes_nothing_more(shard):
    shard.push("a", perform_in=PAST)
    lease = shard.lease()
    lease.try_claim(limit=1, number=1)
    shard.push("b", perform_in=PAST)
    with pytest.raises(StaleClaim):
        lease.try_claim(number=1)
    assert set(shard.claimed()) == {"a"}


def test_numbers_of_claims_begin_anew_with_each_epoch(shard):
    lease = shard.lease()
    lease.try_claim(number=9)
    again = shard.lease()
    shard.push("a")
    assert ids(again.try_claim(number=1).jobs) == ["a"]


def test_a_claim_with_another_shards_count_changes_nothing(app, shard):
    shard.push("a")
    lease = shard.lease()
    before = shard.dump()
    lease.driver = ShardDriver(app, shards_count=2)
    with pytest.raises(ShardsCountMismatch):
        lease.claim()
    assert shard.dump() == before


@pytest.mark.parametrize("stale", ["node", "epoch"])
def test_a_claim_of_who_does_not_own_the_shard_changes_nothing(shard, stale):
    shard.push("a")
    lease = shard.lease()
    setattr(lease, stale, "1")
    before = shard.dump()
    with pytest.raises(Fenced, match="owned by a at epoch"):
        lease.claim()
    assert shard.dump() == before


def test_nobody_owns_a_new_shard(shard):
    shard.push("a")
    lease = shard.lease()
    lease.release()
    with pytest.raises(Fenced, match="owned by nobody"):
        lease.claim()


# ── what can't be decoded ───────────────────────────────────────────────────────────────────────────────────────────


def load_digits(payload: bytes) -> int:
    return int(payload)


def test_a_payload_that_cannot_be_decoded_is_told_apart(shard):
    shard.load = load_digits
    shard.push("good", b"1", 1.0)
    shard.push("bad", b"x", 1.0)
    shard.push_all(("partly", b"2", 1.0), ("partly", b"y", 2.0), ("partly", b"3", 3.0))
    claim = shard.lease().try_claim()
    assert ids(claim.jobs) == ["good"]
    assert [(row.id, row.payload) for row in claim.spoiled] == [("bad", b"x"), ("partly", b"y")]
    assert "load_payload can't decode this payload: ValueError: invalid literal" in claim.spoiled[0].error


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not to be said")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("a \ud800"), "ValueError: a \\ud800"),
        (Unspeakable(), "Unspeakable (which could not be formatted: RuntimeError)"),
    ],
)
def test_what_the_user_says_of_it_may_be_anything(shard, error, text):
    """It goes to Redis with the settle: what can't would end the node, and every one after it."""

    def load(payload: bytes) -> None:
        raise error

    shard.load = load
    shard.push("bad", b"x")
    lease = shard.lease()
    spoiled = lease.try_claim().spoiled
    assert text in spoiled[0].error
    lease.settle(spoiled=spoiled)
    assert text in shard.morgue()["bad"].error


# ── crashes ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def crash(shard, *ids):
    """The ids were in the hands of a node that died."""
    for id in ids:
        shard.redis.hset(shard.key("crashes"), id, 1)


def test_an_id_with_crashes_is_claimed_alone(shard):
    shard.push_all(*((f"id-{n}", b"x", 1.0, PAST + n) for n in range(5)))
    crash(shard, "id-2", "id-3")
    lease = shard.lease()
    claims = []
    while jobs := lease.claim():
        claims.append(ids(jobs))
        lease.settle(rest="ack")
    assert claims == [["id-0", "id-1"], ["id-2"], ["id-3"], ["id-4"]]


def test_all_of_a_claim_are_suspects_after_a_crash(shard):
    shard.push_all(*((f"id-{n}", b"x", 1.0, PAST + n) for n in range(3)))
    shard.lease("a").claim()
    lease = shard.lease("b", dead=["a"])
    assert ids(lease.claim()) == ["id-0"]


def test_crashes_of_ids_that_are_not_due_do_not_matter(shard):
    shard.push_all(("a", b"x", 1.0, PAST), ("b", b"x", 1.0, PAST), ("later", b"x", 1.0, FUTURE))
    crash(shard, "later")
    assert ids(shard.lease().claim()) == ["a", "b"]


# ── fresh jobs only ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("limit", [3, 40, 1000])
@pytest.mark.parametrize("count", [4, 5, 40, 128, 129, 200])
def test_fresh_jobs_are_claimed_in_order_and_leave_nothing(shard, count, limit, together):
    """However Redis keeps them: pushed one by one they are a flat list, up to 128."""
    rows = [[f"{n:03}", b"%d" % n] for n in range(count)]
    for some in [rows] if together else [[row] for row in rows]:
        shard.push_all(*some)
    lease, claimed = shard.lease(), []
    while jobs := lease.claim(limit):
        claimed += [(job.id, *job.payloads) for job in jobs]
        assert len(jobs) == min(limit, count - len(claimed) + len(jobs))
        lease.settle(rest="ack", has_several=False)
    assert claimed == [(id, payload) for id, payload in rows]
    assert shard.names() == {"meta", "owner"}
    assert shard.meta("processed") == count


def test_a_flat_list_is_read_in_one_go(shard):
    for n in range(40):
        shard.push(f"{n}")
    lease = shard.lease()
    shard.redis.config_resetstat()
    assert len(lease.claim()) == 40
    calls = {name: row["calls"] for name, row in shard.redis.info("commandstats").items()}
    assert (calls["cmdstat_hgetall"], calls["cmdstat_hmget"]) == (1, 2)  # the queue; owner and meta


def test_a_flat_list_may_be_in_another_order(shard):
    for n in range(10):
        shard.push(f"{n}", b"%d" % n)
    first = shard.redis.hget(shard.key("payloads"), "0")
    shard.redis.hdel(shard.key("payloads"), "0")
    shard.redis.hset(shard.key("payloads"), "0", first)
    assert [job.payloads for job in shard.lease().claim()] == [[b"%d" % n] for n in range(10)]


@pytest.mark.parametrize("count", [1, 10, 200])
def test_what_only_the_bag_knows_is_not_removed_with_the_rest(shard, count):
    shard.push_all(*([f"{n}", b"x"] for n in range(count)))
    shard.redis.hset(shard.key("payloads"), "stray", "1:x")
    assert len(shard.lease().claim()) == count
    assert shard.redis.hgetall(shard.key("payloads")) == {b"stray": b"1:x"}
