"""Previews: what people see of a job, whatever its place and however large its payloads."""

from __future__ import annotations

import pytest

from lowkiq.admin.jobs.previews import LISTED_BYTES, SHOWN_BYTES, SHOWN_PAYLOADS, Previews
from tests.admin.conftest import fail, ids, push
from tests.queue.shard_driver import FUTURE, PAST, ShardDriver

#: Bytes of payloads that fetch.lua reads for a call.
BUDGET = 4 << 20


def test_a_queued_job_is_told_of(shard, alone):
    shard.push("a", b'{"n":1}', 7.5, PAST + 0.25)
    (job,) = alone.job("a")
    assert (job.id, job.shard, job.where, job.at, job.retry_count) == ("a", 0, "queue", PAST + 0.25, -1)
    assert (job.error, job.crashes, job.payload_count) == (None, 0, 1)
    assert [(payload.score, payload.size, payload.data) for payload in job.payloads] == [(7.5, 7, b'{"n":1}')]


def test_a_job_that_failed_is_told_of(shard, alone):
    fail(shard, a=4)
    (job,) = alone.job("a")
    assert (job.where, job.retry_count, job.error) == ("queue", 4, "error 4")
    assert job.at == pytest.approx(shard.now() + 1000, abs=60)


def test_a_job_in_flight_is_told_of(shard, alone):
    fail(shard, a=4)
    shard.actions.perform_now(["a"])
    shard.lease().claim()
    (job,) = alone.job("a")
    assert (job.where, job.retry_count, job.error, job.payload_count) == ("claim", 4, "error 4", 1)
    assert job.at == pytest.approx(shard.now(), abs=60)
    assert job.payloads[0].data == b"p"


def test_a_job_in_the_morgue_is_told_of(shard, alone):
    shard.push("a", b"p", 1.0, PAST)
    lease = shard.lease()
    lease.claim()
    lease.isolate("a")
    shard.lease("b", dead=["a"], max_crashes=1)
    (job,) = alone.job("a")
    assert (job.where, job.retry_count, job.payload_count) == ("morgue", -1, 1)
    assert job.error == "the node that ran this job died 1 times (max_crashes)"
    assert job.at == pytest.approx(shard.now(), abs=60)


def test_deaths_of_nodes_are_counted(shard, alone):
    shard.push("a", b"p", 1.0, PAST)
    shard.lease().claim()
    lease = shard.lease("b", dead=["a"])
    lease.claim()
    lease.isolate("a")
    shard.lease("c", dead=["b"])
    assert [(job.where, job.crashes) for job in alone.job("a")] == [("queue", 2)]


def test_an_id_can_be_queued_in_flight_and_in_the_morgue_at_once(shard, alone):
    shard.push("a", b"first", 1.0, PAST)
    shard.actions.bury(["a"])
    shard.push("a", b"second", 2.0, PAST)
    shard.lease().claim()
    shard.push("a", b"third", 3.0, FUTURE)
    found = alone.job("a")
    assert [job.where for job in found] == ["queue", "claim", "morgue"]
    assert [job.payloads[0].data for job in found] == [b"third", b"second", b"first"]
    assert [job.payloads[0].score for job in found] == [3.0, 2.0, 1.0]
    assert [job.at for job in found[:2]] == [FUTURE, PAST]
    assert [job.error for job in found] == [None, None, "moved to the morgue by hand"]


def test_a_job_of_another_shard_is_found(work, previews, shard_with):
    push(work, [f"id-{n}" for n in range(20)])
    for n in range(20):
        (job,) = previews.job(f"id-{n}")
        assert (job.id, job.shard) == (f"id-{n}", shard_with(f"id-{n}").shard.index)
    assert previews.job("ghost") == []


@pytest.mark.parametrize("id", ["", "x" * 513, "\ud800"])
def test_what_cannot_be_an_id_is_told(alone, id):
    with pytest.raises(ValueError, match="id"):
        alone.job(id)
    with pytest.raises(ValueError, match="id"):
        alone.ahead(id)


@pytest.mark.parametrize("id", ["*", "a:b", "line\nbreak", "nul\x00", "💥", "{q:0}", " ", "a" * 512])
def test_an_id_can_be_any_text(shard, alone, id):
    shard.push(id, b"x", 1.0, PAST)
    shard.push(id, b"y", 2.0, PAST)
    assert [(job.id, len(job.payloads)) for job in alone.job(id)] == [(id, 2)]
    assert ids(alone.page("due")) == [id]


@pytest.mark.parametrize("where", ["queue", "claim", "morgue"])
@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("size", [0, 1, SHOWN_BYTES - 1, SHOWN_BYTES, SHOWN_BYTES + 1, 100_000])
def test_a_shown_payload_is_cut_and_its_size_true(shard, alone, size, several, where):
    payload = bytes(range(256)) * (size // 256 + 1)
    shard.push("a", payload[:size], 1.0, PAST)
    if several:
        shard.push("a", b"other", 2.0)
    move(shard, "a", where)
    (job,) = alone.job("a")
    assert (job.where, job.payload_count) == (where, 1 + several)
    first = job.payloads[0]
    assert (first.score, first.size, first.data) == (1.0, size, payload[: min(size, SHOWN_BYTES)])


@pytest.mark.parametrize("where", ["queue", "claim", "morgue"])
def test_a_listed_payload_is_cut_and_its_size_true(shard, alone, where):
    for id, size in {"exact": LISTED_BYTES, "longer": LISTED_BYTES + 1, "empty": 0}.items():
        shard.push(id, b"x" * size, 1.0, PAST)
        move(shard, id, where)
    jobs = alone.in_flight() if where == "claim" else alone.page("morgue" if where == "morgue" else "due").jobs
    told = {job.id: [(payload.size, len(payload.data)) for payload in job.payloads] for job in jobs}
    assert told == {"exact": [(200, 200)], "longer": [(201, 200)], "empty": [(0, 0)]}


def move(shard, id, where):
    if where == "morgue":
        shard.actions.bury([id])
    elif where == "claim":
        for _ in range(2):  # the first gives back what the last move left in the claim
            lease = shard.lease("n", dead=["n"], max_crashes=1000)
            lease.claim()


@pytest.mark.parametrize("count", [2, 9, 10, 11, 20, 99, 100, 150])
def test_of_several_payloads_the_lowest_are_told_and_all_are_counted(shard, alone, count):
    shard.push_payloads("a", count)
    (job,) = alone.job("a")
    assert job.payload_count == count
    expected = [(float(n), b"%d" % n) for n in range(min(count, SHOWN_PAYLOADS))]
    assert [(payload.score, payload.data) for payload in job.payloads] == expected
    (job,) = alone.page("due").jobs
    assert (job.payload_count, [payload.data for payload in job.payloads]) == (count, [b"0"])


def test_who_wants_no_payloads_gets_none(shard):
    shard.push("a", b"p", 1.0, PAST)
    shard.push_payloads("b", 3)
    rows = shard.call("fetch", "queue", 0, 10, "a", "b")
    assert [(int(row[6]), row[7:]) for row in rows] == [(1, []), (3, [])]


def test_payloads_are_bytes_whatever_they_hold(shard, alone):
    raw = [b"\xff\xfe not text", b"\x00", b"a:b:c", b"*", b"", b'{"half', b"-1:0"]
    for number, payload in enumerate(raw):
        shard.push(f"id-{number}", payload, 1.0, PAST + number)
        shard.push("all", payload, float(number), PAST + 100)
    told = alone.page("due").jobs
    assert [job.payloads[0].data for job in told[:-1]] == raw
    assert [payload.data for payload in alone.job("all")[0].payloads] == raw


def test_a_payload_is_not_decoded(make_app):
    """So a job that breaks `load_payload` can be looked at."""

    def load(data):
        raise AssertionError(data)

    app = make_app(load_payload=load)
    shard = ShardDriver(app)
    shard.push("a", b"secret")
    (job,) = Previews(app.caller, [shard.shard], load_error=str, max_id_bytes=512).job("a")
    assert job.payloads[0].data == b"secret"


def test_of_text_that_is_no_utf_8_ids_can_be_asked_for_again(app, shard, alone):
    """An id or an error that another program has written."""
    id = b"bad-\xff"
    app.redis().zadd(shard.key("due"), {id: PAST})
    app.redis().zadd(shard.key("retries"), {id: 3})
    app.redis().hset(shard.key("payloads"), id, b"1:p")
    app.redis().hset(shard.key("errors"), id, b"boom \xfe")
    (job,) = alone.page("due").jobs
    assert (job.id, job.error, job.retry_count) == ("bad-\udcff", "boom \ufffd", 3)
    assert alone.errors()[0][0].example_id == "bad-\udcff"
    assert ids(alone.page("due", pattern="bad*")) == ["bad-\udcff"]
    assert [found.id for found in alone.job("bad-\udcff")] == ["bad-\udcff"]


def test_a_look_reads_no_more_than_its_budget(shard, alone):
    """4 MiB, and what one step reads beyond it."""
    size = 300_000
    for number in range(60):
        shard.push("a", b"%02d" % number + b"x" * (size - 2), float(number), PAST)
    (job,) = alone.job("a")
    assert job.payload_count == 60
    told = len(job.payloads)
    assert BUDGET // size <= told <= BUDGET // size + 1
    assert [payload.data[:2] for payload in job.payloads] == [b"%02d" % number for number in range(told)]
    assert {payload.size for payload in job.payloads} == {size}


def test_a_claim_of_large_payloads_is_listed_whole_too(shard, alone):
    """A claim takes no more than a megabyte and a payload; this one was written by hand."""
    size = 1 << 20
    for number in range(8):
        shard.redis.rpush(shard.key("claim"), f"id-{number}", b"1100000000.000000:2:1:" + b"x" * size)
    jobs = alone.in_flight()
    assert [(job.at, job.retry_count, job.payload_count) for job in jobs] == [(PAST, 2, 1)] * 8
    assert [payload.size for job in jobs for payload in job.payloads] == [size] * 5


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("where", ["queue", "morgue"])
def test_a_page_lists_every_job_and_does_not_even_read_payloads_over_the_budget(shard, alone, where, several):
    """A hundred jobs of a megabyte would keep Redis busy for 400 ms, the first five for 20."""
    names = [f"id-{number:02}" for number in range(20)]
    for number, id in enumerate(names):
        shard.push(id, b"x" * (1 << 19), 1.0, PAST + number)
        if several:
            shard.push(id, b"y", 2.0)
    if where == "morgue":
        shard.actions.bury(names)
    shard.redis.config_resetstat()
    jobs = alone.page("morgue" if where == "morgue" else "due", limit=20).jobs
    calls = {name: row["calls"] for name, row in shard.redis.info("commandstats").items()}
    assert sorted(job.id for job in jobs) == names
    assert {job.payload_count for job in jobs} == {1 + several}
    told = [(payload.size, len(payload.data)) for job in jobs for payload in job.payloads]
    assert told == [(1 << 19, LISTED_BYTES)] * 9  # the ninth goes beyond 4 MiB
    assert (calls["cmdstat_hget"] - 2 * 20, calls["cmdstat_hstrlen"]) == (9, 11)  # errors and deaths are hashes too
    assert calls.get("cmdstat_zrange", 0) == (9 if several else 0)
