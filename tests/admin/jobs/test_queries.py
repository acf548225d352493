"""Queries: what an operator sees, over several shards."""

from __future__ import annotations

import pytest
import redis

from lowkiq.errors import LowkiqError
from tests.admin.conftest import SHARDS
from tests.queue.shard_driver import FUTURE, PAST, ShardDriver

IDS = [f"id-{n:02}" for n in range(20)]


@pytest.fixture
def filled(work):
    """Jobs with payload n, score n, due n seconds after PAST."""
    work.perform_async({"id": id, "payload": {"n": n}, "score": n, "perform_in": PAST + n} for n, id in enumerate(IDS))
    return work


@pytest.fixture
def failed(filled, shard_with):
    """The first ten have failed, id-00 ten times, id-09 once."""
    for shard in {shard_with(id) for id in IDS}:
        lease = shard.lease()
        for job in lease.claim():
            number = int(job.id[3:])
            if number < 10:
                lease.fail(job.id, retry_count=9 - number, delay=number, error=f"error {number}")
        lease.release("lease")
    return filled


def ids(jobs):
    return [job.id for job in jobs]


def test_fetch_gives_jobs_in_the_order_asked_for(filled):
    jobs = filled.queries.fetch(["id-07", "ghost", "id-03", "id-11"])
    assert ids(jobs) == ["id-07", "id-03", "id-11"]
    assert [job.payloads for job in jobs] == [[{"n": 7}], [{"n": 3}], [{"n": 11}]]
    assert [job.scores for job in jobs] == [(7.0,), (3.0,), (11.0,)]
    assert [(job.perform_in, job.retry_count, job.error) for job in jobs[:1]] == [(PAST + 7, -1, None)]


def test_fetch_gives_payloads_from_low_to_high(work):
    work.perform_async([{"id": 5, "payload": n, "score": n} for n in (3, 1, 2)])
    (job,) = work.queries.fetch([5])
    assert (job.id, job.payloads, job.scores, job.payload_count) == ("5", [1, 2, 3], (1.0, 2.0, 3.0), 3)


def test_fetch_gives_at_most_max_payloads_and_says_how_many_there_are(make_app):
    work = make_app(max_payloads=2).worker(queue_name="q")(lambda _: None)
    work.perform_async([{"id": "a", "payload": n, "score": n} for n in range(5)])
    (job,) = work.queries.fetch(["a"])
    assert (job.payloads, job.payload_count) == ([0, 1], 5)


def test_fetch_gives_whole_payloads_however_large(work):
    """Looks for people have a budget of 4 MiB; a program gets what it asked for."""
    large = ["x" * 900_000 + str(n) for n in range(6)]
    work.perform_async([{"id": "a", "payload": payload, "score": n} for n, payload in enumerate(large)])
    work.perform_async([{"id": "b", "payload": large[0]}])
    assert [job.payloads for job in work.queries.fetch(["a", "b"])] == [large, large[:1]]


def test_fetch_of_many_large_payloads_does_not_hold_up_redis(work, app, monkeypatch):
    """A script reads some megabytes of them, and is asked again for the rest."""
    jobs = [{"id": f"id-{n}", "payload": f"{n} " + "x" * 900_000} for n in range(24)]
    work.perform_async(jobs)
    sizes = []
    run_all = app.caller.run_all

    def watched(calls):
        results = run_all(calls)
        sizes.extend(sum(len(row[7]) for row in rows if row and row != b"later") for rows in results)
        return results

    monkeypatch.setattr(app.caller, "run_all", watched)
    found = work.queries.fetch([*(job["id"] for job in jobs), "ghost"])
    assert [(job.id, job.payloads) for job in found] == [(job["id"], [job["payload"]]) for job in jobs]
    assert max(sizes) < 6_000_000


def test_a_payload_that_cannot_be_decoded_is_shown_raw(work, shard_with):
    shard_with("a").push("a", b"\xffnot json")
    assert work.queries.fetch(["a"])[0].payloads == [b"\xffnot json"]


@pytest.mark.parametrize("ids", [[""], [1.5], ["x" * 513]])
def test_what_cannot_be_an_id_is_not_looked_for(work, ids):
    with pytest.raises((LowkiqError, TypeError, ValueError)):
        work.queries.fetch(ids)


def test_looks_at_nothing_are_empty(work):
    queries = work.queries
    assert queries.fetch([]) == queries.morgue_fetch([]) == []
    assert queries.range_by_perform_in() == queries.rev_range_by_perform_in() == []
    assert queries.range_by_retry_count() == queries.rev_range_by_retry_count() == []
    assert queries.morgue_range_by_updated_at() == queries.morgue_rev_range_by_updated_at() == []
    assert list(queries.find("*")) == list(queries.morgue_find("*")) == []


def test_a_range_by_perform_in_is_over_all_shards(filled):
    assert ids(filled.queries.range_by_perform_in()) == IDS[:10]
    assert ids(filled.queries.range_by_perform_in(limit=100)) == IDS
    assert ids(filled.queries.rev_range_by_perform_in(limit=3)) == IDS[:-4:-1]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (PAST + 3, PAST + 5, IDS[3:6]),
        (f"({PAST + 3}", PAST + 5, IDS[4:6]),
        (PAST + 3, f"({PAST + 5}", IDS[3:5]),
        ("-inf", PAST + 2, IDS[:3]),
        (PAST + 18, "+inf", IDS[18:]),
        (PAST + 5, PAST + 3, []),
    ],
)
def test_a_range_has_bounds(filled, low, high, expected):
    assert ids(filled.queries.range_by_perform_in(low, high)) == expected
    assert ids(filled.queries.rev_range_by_perform_in(high, low)) == expected[::-1]


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_of_nothing_gives_nothing(failed, limit):
    queries = failed.queries
    assert queries.range_by_perform_in(limit=limit) == queries.range_by_retry_count(limit=limit) == []
    assert queries.rev_range_by_retry_count(limit=limit) == []


def test_a_range_by_retry_count_has_fresh_jobs_first_and_reversed_last(failed):
    (job,) = failed.queries.fetch(["id-04"])
    assert (job.retry_count, job.error) == (5, "error 4")
    jobs = failed.queries.range_by_retry_count(limit=100)
    assert set(ids(jobs[:10])) == set(IDS[10:])
    assert [job.retry_count for job in jobs] == [-1] * 10 + list(range(10))
    assert ids(jobs[10:]) == IDS[9::-1]
    jobs = failed.queries.rev_range_by_retry_count(limit=100)
    assert [job.retry_count for job in jobs] == list(range(9, -1, -1)) + [-1] * 10
    assert ids(jobs[:10]) == IDS[:10]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 2, [0, 1, 2]),
        ("(0", "(3", [1, 2]),
        (-1, 0, [-1] * 10 + [0]),
        ("(-1", 0, [0]),
        (-1, -1, [-1] * 10),
        ("-inf", "(0", [-1] * 10),
        (5, "+inf", [5, 6, 7, 8, 9]),
    ],
)
def test_a_range_by_retry_count_has_bounds(failed, low, high, expected):
    queries = failed.queries
    assert [job.retry_count for job in queries.range_by_retry_count(low, high, 100)] == expected
    assert [job.retry_count for job in queries.rev_range_by_retry_count(high, low, 100)] == expected[::-1]


def test_fresh_jobs_are_found_behind_many_failed_ones(app):
    """More than one page of them."""
    shard = ShardDriver(app)
    shard.push_all(*((f"failed-{n}", b"1", 1.0, PAST) for n in range(250)))
    lease = shard.lease()
    lease.claim()
    for n in range(250):
        lease.fail(f"failed-{n}", delay=-FUTURE)
    shard.push("fresh")
    assert ids(app.queries("q", 1).range_by_retry_count(limit=1)) == ["fresh"]


def test_the_morgue_has_its_own_queries(filled):
    for id in ("id-05", "id-02", "id-09"):
        filled.actions.bury([id])
    queries = filled.queries
    assert ids(queries.morgue_fetch(["id-02", "id-03"])) == ["id-02"]
    assert ids(queries.morgue_range_by_updated_at()) == ["id-05", "id-02", "id-09"]
    assert ids(queries.morgue_rev_range_by_updated_at(limit=2)) == ["id-09", "id-02"]
    (job,) = queries.morgue_fetch(["id-05"])
    assert (job.payloads, job.error, job.retry_count) == ([{"n": 5}], "moved to the morgue by hand", -1)
    after = f"({job.perform_in:.6f}"
    assert ids(queries.morgue_range_by_updated_at(after)) == ["id-02", "id-09"]
    assert ids(queries.morgue_rev_range_by_updated_at("+inf", after)) == ["id-09", "id-02"]
    assert sorted(ids(queries.morgue_find("id-*"))) == ["id-02", "id-05", "id-09"]
    assert ids(queries.fetch(["id-02"])) == []


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [("id-0*", IDS[:10]), ("id-07", ["id-07"]), ("*7", ["id-07", "id-17"]), ("id-1[0-2]", IDS[10:13]), ("x", [])],
)
def test_jobs_are_found_by_a_glob(filled, pattern, expected):
    assert sorted(ids(filled.queries.find(pattern))) == expected


def test_a_find_reads_on_over_many_jobs_and_gives_each_once(work):
    work.perform_async({"id": f"n{n}"} for n in range(2000))
    assert sorted(ids(work.queries.find("*"))) == sorted(f"n{n}" for n in range(2000))


def test_errors_are_loaded_as_they_were_dumped(make_app):
    app = make_app(load_error=str.upper)
    shard = ShardDriver(app)
    shard.push("a", b"1")
    lease = shard.lease()
    lease.claim()
    lease.fail("a", error="boom")
    assert app.queries("q", 1).fetch(["a"])[0].error == "BOOM"


def test_jobs_in_hand_are_not_in_the_queue(filled, shard_with):
    shard_with("id-03").lease().claim()
    assert filled.queries.fetch(["id-03"]) == []


@pytest.mark.parametrize("protocol", [2, 3])
def test_ranges_work_with_a_client_of_the_users_making(make_app, redis_server, protocol):
    app = make_app(redis=lambda: redis.Redis(unix_socket_path=str(redis_server.socket), protocol=protocol))

    work = app.worker(queue_name="q", shards_count=SHARDS)(lambda _: None)
    work.perform_async({"id": n, "perform_in": PAST + n} for n in range(5))
    assert ids(work.queries.range_by_perform_in()) == ["0", "1", "2", "3", "4"]
