"""claim: what the model of a shard doesn't decide, by number, by size, and in the forms in which Redis keeps it."""

from __future__ import annotations

import pytest

from lowkiq.errors import Fenced, StaleClaim
from lowkiq.job import Job
from lowkiq.queue.claims import load_all
from lowkiq.queue.shard import MAX_CLAIM, MAX_CLAIM_BYTES
from tests.queue.look import Claimed, Queued
from tests.queue.shard_driver import FUTURE, PAST, Lease


def ids(jobs):
    return [job.id for job in jobs]


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
def test_compact_records_keep_their_due_times_however_old_they_are(shard, clock, count):
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
def test_two_compact_records_keep_their_due_times(shard, clock, apart):
    shard.push("first")
    first = clock.now
    clock.step(apart)
    shard.push("second")
    jobs = shard.lease().claim()
    assert [round(job.perform_in * 1e6) for job in jobs] == [first, first + max(apart, 1)]
    assert [claimed.perform_in for claimed in shard.claimed().values()] == [job.perform_in for job in jobs]


def test_an_empty_queue_has_no_due_time(shard):
    assert shard.lease().try_claim().due_in is None


def test_a_claim_takes_at_most_a_thousand_jobs(shard):
    for part in range(2):
        shard.push_all(*((f"{part}-{n:04}", b"x", 1.0, PAST) for n in range(600)))
    assert len(shard.lease().claim(limit=5000)) == MAX_CLAIM == 1000
    assert len(shard.queued()) == 200


def test_a_thousand_lowest_of_more_payloads_are_taken(shard):
    for first in (0, 1000):
        shard.push_payloads("a", 1000, first)
    shard.push_payloads("a", 1, 2000)
    lease = shard.lease()
    (job,) = lease.claim()
    assert job.scores == tuple(map(float, range(1000)))
    lease.release("claim")
    assert len(shard.queued()["a"].payloads) == 2001


QUARTER = MAX_CLAIM_BYTES // 4 + 1


@pytest.mark.parametrize(
    ("sizes", "claims"),
    [
        ([("a", QUARTER), ("b", QUARTER), ("c", QUARTER), ("d", QUARTER), ("e", QUARTER)], ["abcd", "e"]),
        ([("large", MAX_CLAIM_BYTES + 1), ("small", 1)], [["large"], ["small"]]),
        ([*[("a", QUARTER)] * 4, ("b", 1)], ["aaaa", "b"]),
        # An id with many large payloads would make a reply too large ever to arrive.
        ([("a", QUARTER)] * 10, ["aaaa", "aaaa", "aa"]),
        ([("a", 2 * QUARTER), *[("b", 2 * QUARTER)] * 3], ["ab", "bb"]),
    ],
)
def test_a_claim_is_full_after_so_many_bytes(shard, sizes, claims):
    """Its last payload may exceed them; a job is cut where that is."""
    for n, (id, size) in enumerate(sizes):
        shard.push(id, b"%02d" % n + bytes(size), float(n), PAST + n)
    lease, taken, order = shard.lease(), [], []
    while jobs := lease.claim():
        taken.append([job.id for job in jobs for _ in job.payloads])
        order += [int(payload[:2]) for job in jobs for payload in job.payloads]
        lease.settle(rest="ack")
    assert taken == list(map(list, claims))
    assert order == list(range(len(sizes)))


def test_a_refusal_says_why(shard):
    """When each is refused the model decides."""
    lease = shard.lease()
    lease.try_claim(number=2)
    with pytest.raises(StaleClaim, match="claim 2 came later"):
        lease.try_claim(number=1)
    with pytest.raises(Fenced, match=f"owned by a at epoch {lease.epoch}"):
        Lease(shard, "b", lease.epoch).claim()
    lease.release()
    with pytest.raises(Fenced, match="owned by nobody"):
        lease.claim()


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


def test_all_payloads_of_an_id_that_cannot_be_converted_are_told_apart(shard):
    shard.push_all(("17", b"a", 1.0, PAST), ("x", b"b", 1.0, PAST), ("y", b"c", 1.0, PAST), ("y", b"d", 2.0))
    shard.push("late", b"e", 1.0, PAST - 1e6)  # not in the compact form
    shard.check_id = int
    claim = shard.lease().try_claim()
    assert [(job.id, job.payloads) for job in claim.jobs] == [("17", [b"a"])]
    assert sorted((row.id, row.payload) for row in claim.spoiled) == [
        ("late", b"e"), ("x", b"b"), ("y", b"c"), ("y", b"d"),
    ]  # fmt: skip
    error = "the worker's type of ids can't hold this one: ValueError: invalid literal for int() with base 10: 'x'"
    assert error in [row.error for row in claim.spoiled]


def test_a_suspect_whose_id_cannot_be_converted_is_all_spoiled():
    suspect = Job("x", [b"1", b"2"], (1.0, 2.0), PAST)
    assert [(row.id, row.payload) for row in load_all(suspect, load_digits, int)] == [("x", b"1"), ("x", b"2")]
    assert load_all(Job("17", [b"1"], (1.0,), PAST), load_digits, int) == []


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


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("limit", [3, 40, 1000])
@pytest.mark.parametrize("count", [4, 5, 40, 128, 129, 200])
def test_compact_records_are_claimed_in_order_and_leave_nothing(shard, count, limit, together):
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
def test_what_only_the_payloads_know_is_not_removed_with_the_rest(shard, count):
    shard.push_all(*([f"{n}", b"x"] for n in range(count)))
    shard.redis.hset(shard.key("payloads"), "stray", "1:x")
    assert len(shard.lease().claim()) == count
    assert shard.redis.hgetall(shard.key("payloads")) == {b"stray": b"1:x"}
