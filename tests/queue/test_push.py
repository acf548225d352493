"""push: what producers put into a shard."""

from __future__ import annotations

import pytest

from tests.queue.look import Queued
from tests.queue.shard_driver import PAST


def test_a_given_perform_in_is_kept_to_the_microsecond(shard):
    shard.push("a", perform_in=1_790_000_000.123457)
    assert shard.queued()["a"].perform_in == 1_790_000_000.123457


@pytest.mark.parametrize("delay", [0.0, 0.5, 7200.0, 3_155_760_000.0])
@pytest.mark.parametrize("rows", [1, 30])
def test_a_delay_is_counted_from_the_push_by_the_clock_of_redis(shard, clock, delay, rows):
    clock.set(1_790_000_000_123_456)
    shard.push_all(*((f"id-{n}", b"x", "", f"+{delay:.6f}") for n in range(rows)))
    due = sorted(job.perform_in for job in shard.queued().values())
    expected = [(1_790_000_000_123_456 + delay * 1_000_000 + place) / 1e6 for place in range(rows)]
    assert due == pytest.approx(expected, rel=0, abs=1e-6)
    lease = shard.lease()
    if delay:
        clock.step(delay * 1_000_000 - 1000)
        assert lease.claim() == []
        clock.step(2000)
    assert len(lease.claim()) == rows


def test_a_delay_rings_an_idle_owner_for_its_time(shard, clock):
    lease = shard.lease()
    lease.claim()
    shard.push("a", perform_in="+60.000000")
    assert shard.owner("waiting") == f"{clock.now / 1e6 + 60:.6f}"


def test_what_joins_a_queued_id_keeps_its_due_time_though_it_has_a_delay(shard):
    shard.push("a", b"x", perform_in=PAST)
    assert shard.push("a", b"y", perform_in="+60.000000") == (0, 1)
    assert shard.queued()["a"].perform_in == PAST


@pytest.mark.parametrize("perform_in", [-5.5, 0.0, 1e15, -1e300, 1e300])
def test_any_finite_perform_in_is_taken(shard, perform_in):
    shard.push("a", perform_in=perform_in)
    assert shard.queued()["a"].perform_in == perform_in


@pytest.mark.parametrize("score", [-5.5, 0.0, -0.0, 1e22, 1e300, -1e-300, 0.1 + 0.2])
def test_any_finite_score_is_kept_exactly(shard, score):
    shard.push("a", b"x", score)
    assert shard.queued()["a"].payloads == {b"x": score}
    shard.push("a", b"y", 1.0)
    assert shard.queued()["a"].payloads == {b"x": score, b"y": 1.0}


def test_a_batch_gets_a_table_at_once_and_a_few_jobs_a_list(shard):
    """In a list, each job of a batch would look at all that came before it."""
    shard.push_all(*((f"id-{n}", b"x") for n in range(11)))
    assert {encoding(shard, key) for key in ("due", "payloads")} <= {b"listpack", b"ziplist"}
    lease = shard.lease()
    lease.claim()
    lease.ack(*(f"id-{n}" for n in range(11)))
    shard.push_all(*((f"id-{n}", b"x") for n in range(12)))
    assert [encoding(shard, key) for key in ("due", "payloads")] == [b"skiplist", b"hashtable"]
    assert [job.id for job in lease.claim()] == [f"id-{n}" for n in range(12)]


def encoding(shard, key):
    return shard.redis.object("encoding", shard.key(key))


@pytest.mark.parametrize("given", [(), (1.0,), ("", PAST)])
@pytest.mark.parametrize("known", [["a" + " " * 65], ["other"]])
def test_what_makes_a_table_of_a_batch_is_no_id_afterwards(shard, known, given):
    """Redis is led to it by a member of more than 64 bytes; an id may look just like that one."""
    ids = ["a", "a" + " " * 65, *(f"id-{n}" for n in range(20))]
    assert shard.push_all(*((id, b"x") for id in ids[:-1]), (ids[-1], b"x", *given)) == (22, 0)
    lease = shard.lease()
    in_order = sorted if given else list  # one that is not fresh may be due before the others
    assert in_order([job.id for job in lease.claim()]) == in_order(ids)
    lease.ack(*ids)
    shard.push_all(*((id, b"x") for id in known))
    shard.push_all(*((id, b"y") for id in ids))
    assert {job.id for job in lease.claim()} == {*known, *ids}


@pytest.mark.parametrize(("first", "second"), [(1.0, 2.0), (2.0, 1.0), (1.0, 1.0), (9.0, 10.0), (10.0, 9.0)])
@pytest.mark.parametrize("others", [0, 3])
@pytest.mark.parametrize(("word", "which"), [("", max), (":::lowest", min)])
def test_equal_payloads_keep_the_higher_score_or_by_rule_the_lower(shard, first, second, others, word, which):
    """Compared as numbers, in the form of one payload as in that of several."""
    for n in range(others):
        shard.push("a", b"other %d" % n, 5.0)
    for score in (first, second):
        shard.push_all(("a", b"x", score, "", "", "", word))
    assert shard.queued()["a"].payloads[b"x"] == which(first, second)
    assert len(shard.queued()["a"].payloads) == 1 + others


def test_default_scores_keep_the_order_within_a_call(shard):
    names = [b"%d" % n for n in range(50)]
    shard.push_all(*(("a", name) for name in names))
    payloads = shard.queued()["a"].payloads
    assert sorted(payloads, key=payloads.__getitem__) == names
    assert len(set(payloads.values())) == len(names)


def test_default_scores_keep_the_order_over_two_calls(shard):
    """The second call may come before the time that the first one's last score says."""
    names = [b"%d" % n for n in range(1000)]
    shard.push_all(*(("a", name) for name in names[:-1]))
    assert shard.now() < max(shard.queued()["a"].payloads.values()) + 1
    shard.push("a", names[-1])
    payloads = shard.queued()["a"].payloads
    assert sorted(payloads, key=payloads.__getitem__) == names


def test_a_default_score_is_the_time_of_redis(shard):
    before = shard.now()
    shard.push("a", b"x")
    assert before <= shard.queued()["a"].payloads[b"x"] <= shard.now()


@pytest.mark.parametrize("micros", [0, 7, 70, 100_000, 999_999])
def test_a_push_of_one_job_is_due_to_the_microsecond(shard, clock, micros):
    shard.push("before")
    clock.set(clock.now + 5_000_000 + micros)
    shard.push("a", b"x")
    (job,) = (job for id, job in shard.queued().items() if id == "a")
    assert round(job.perform_in * 1e6) == round(job.payloads[b"x"] * 1e6) == shard.meta("last_score") == clock.now


def test_a_thousand_new_ids_fit_one_call(shard):
    assert shard.push_all(*((f"id-{n}", b"%d" % n, float(n), PAST + n) for n in range(1000))) == (1000, 0)
    assert shard.queued() == {f"id-{n}": Queued({b"%d" % n: float(n)}, PAST + n) for n in range(1000)}


def test_an_id_that_recurs_after_many_others_merges(shard):
    rows = [(f"id-{n % 700}", b"%d" % n, float(n)) for n in range(1000)]
    assert shard.push_all(*rows) == (700, 300)
    assert shard.queued()["id-299"].payloads == {b"299": 299.0, b"999": 999.0}


@pytest.mark.parametrize("payload", [b"", b":", b"*", b"a:b:c", b"1:x", b"\x00\n\xff", b"{}", b" "])
@pytest.mark.parametrize("count", [1, 2])
def test_payloads_are_bytes_that_nothing_reads(shard, payload, count):
    if count == 2:
        shard.push("a", b"other", 1.0, PAST)
    shard.push("a", payload, 2.0, PAST)
    assert shard.queued()["a"].payloads[payload] == 2.0
    lease = shard.lease()
    (job,) = lease.claim()
    assert (job.payloads[-1], job.scores[-1]) == (payload, 2.0)
    lease.fail("a", delay=0)
    assert shard.queued()["a"].payloads[payload] == 2.0


@pytest.mark.parametrize("count", [2, 100])
def test_a_push_of_which_some_ids_are_queued_keeps_all_payloads_and_their_order(shard, clock, count):
    """The index is told of all of them before it is known that some are there."""
    ids = [f"id-{n % (count - 1)}" for n in range(count)]  # the last is the first again
    shard.push("id-0", b"before", perform_in=clock.now / 1e6 + 60)
    begin = clock.now + 1
    assert shard.push_all(*((id, b"%d" % n) for n, id in enumerate(ids))) == (count - 2, 2)
    queued = shard.queued()
    for n, id in enumerate(ids):
        assert round(queued[id].payloads[b"%d" % n] * 1e6) == begin + n
    assert queued["id-0"].perform_in == pytest.approx(clock.now / 1e6 + 60)
    assert set(queued["id-0"].payloads) == {b"before", b"0", b"%d" % (count - 1)}
