"""Previews: what people see of jobs, bounded however long the queue and however large its payloads."""

from __future__ import annotations

import zlib
from collections import Counter

import pytest

from lowkiq.admin import previews as previews_module
from lowkiq.admin.previews import LISTED_BYTES, SEARCHED_A_PAGE, SHOWN_BYTES, SHOWN_PAYLOADS, Previews
from lowkiq.admin.search import Match
from lowkiq.errors import ShardsCountMismatch
from tests.admin.conftest import SHARDS
from tests.queue.shard_driver import FUTURE, PAST, ShardDriver

#: Bytes of payloads that fetch.lua reads for a call.
BUDGET = 4 << 20


@pytest.fixture
def previews(app):
    return Previews(app.caller, app.shards("q", SHARDS), load_error=str, max_id_bytes=512)


@pytest.fixture
def alone(app, shard):
    """Previews of the queue whose only shard is `shard`."""
    return Previews(app.caller, [shard.shard], load_error=str, max_id_bytes=512)


def push(work, ids, **fields):
    work.perform_async([{"id": id, "perform_in": PAST} | fields for id in ids])


def fail(shard, **retry_counts):
    """Pushes jobs that then have failed so often."""
    shard.push_all(*((id, b"p", 1.0, PAST) for id in retry_counts))
    lease = shard.lease()
    lease.claim()
    for number, (id, retry_count) in enumerate(retry_counts.items()):
        lease.fail(id, retry_count, delay=1000 + number, error=f"error {retry_count}")
    lease.release("lease")


def ids(page):
    return [job.id for job in page.jobs]


def pages(previews, view, **options):
    """All of them, from the first cursor to the last."""
    found, cursor = [], None
    while True:
        page = previews.page(view, cursor=cursor, **options)
        found.append(page)
        assert len(found) <= 1_000, "they do not come to an end"
        if page.next is None:
            return found
        cursor = page.next


# ── what a preview tells ──────────────────────────────────────────────────────────────────────────────────────────────


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
    shard.lease().claim()
    shard.lease("b", dead=["a"], max_crashes=1)
    (job,) = alone.job("a")
    assert (job.where, job.retry_count, job.payload_count) == ("morgue", -1, 1)
    assert job.error == "the node that ran this job died 1 times (max_crashes)"
    assert job.at == pytest.approx(shard.now(), abs=60)


def test_deaths_of_nodes_are_counted(shard, alone):
    shard.push("a", b"p", 1.0, PAST)
    shard.lease().claim()
    shard.lease("b", dead=["a"]).claim()
    shard.lease("c", dead=["b"])
    assert [(job.where, job.crashes) for job in alone.job("a")] == [("queue", 2)]


def test_an_id_can_be_queued_in_flight_and_in_the_morgue_at_once(shard, alone):
    shard.push("a", b"first", 1.0, PAST)
    shard.actions.kill(["a"])
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


def test_a_job_that_is_nowhere_is_an_empty_list(alone):
    assert alone.job("ghost") == []


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


# ── payloads ────────────────────────────────────────────────────────────────────────────────────────────────────────


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
        shard.actions.kill([id])
    elif where == "claim":
        for _ in range(2):  # the first gives back what the last move left in the claim
            lease = shard.lease("n", dead=["n"], max_crashes=1000)
            lease.claim()


def test_of_several_payloads_the_lowest_are_told_and_all_are_counted(shard, alone):
    shard.push_payloads("a", SHOWN_PAYLOADS + 50)
    (job,) = alone.job("a")
    assert job.payload_count == SHOWN_PAYLOADS + 50
    assert [payload.data for payload in job.payloads] == [b"%d" % n for n in range(SHOWN_PAYLOADS)]
    assert [payload.score for payload in job.payloads] == [float(n) for n in range(SHOWN_PAYLOADS)]
    (job,) = alone.page("due").jobs
    assert (job.payload_count, [payload.data for payload in job.payloads]) == (SHOWN_PAYLOADS + 50, [b"0"])


def test_who_wants_no_payloads_gets_none(shard):
    shard.push("a", b"p", 1.0, PAST)
    shard.push_payloads("b", 3)
    rows = shard.call("fetch", "queue", 0, 10, "a", "b")
    assert [(int(row[4]), row[5:]) for row in rows] == [(1, []), (3, [])]


@pytest.mark.parametrize("count", [2, 9, 10, 11, 20, 99, 100])
def test_few_payloads_are_all_told(shard, alone, count):
    shard.push_payloads("a", count)
    assert [payload.data for payload in alone.job("a")[0].payloads] == [b"%d" % n for n in range(count)]


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


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("where", ["queue", "morgue"])
def test_a_page_of_large_payloads_lists_every_job_and_leaves_out_payloads(shard, alone, several, where):
    size = 1 << 20
    for number in range(8):
        shard.push(f"id-{number}", b"%d" % number * size, 1.0, PAST + number)
        if several:
            shard.push(f"id-{number}", b"other", 2.0)
    if where == "morgue":
        shard.actions.kill(f"id-{number}" for number in range(8))
    jobs = alone.page("morgue" if where == "morgue" else "due").jobs
    assert sorted(job.id for job in jobs) == [f"id-{number}" for number in range(8)]
    assert {job.payload_count for job in jobs} == {1 + several}
    told = [payload for job in jobs for payload in job.payloads]
    assert len(told) == 5  # the fifth goes beyond 4 MiB
    assert {(payload.size, len(payload.data)) for payload in told} == {(size, LISTED_BYTES)}


def test_a_claim_of_large_payloads_is_listed_whole_too(shard, alone):
    """A claim takes no more than a megabyte and a payload; this one was written by hand."""
    size = 1 << 20
    for number in range(8):
        shard.redis.rpush(shard.key("claim"), f"id-{number}", b"1000000.000000:2:1:" + b"x" * size)
    jobs = alone.in_flight()
    assert [(job.at, job.retry_count, job.payload_count) for job in jobs] == [(PAST, 2, 1)] * 8
    assert [payload.size for job in jobs for payload in job.payloads] == [size] * 5


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("where", ["queue", "morgue"])
def test_what_is_over_the_budget_is_not_even_read(shard, alone, where, several):
    """A hundred jobs of a megabyte would keep Redis busy for 400 ms, the first five for 20."""
    for number in range(20):
        shard.push(f"id-{number:02}", b"x" * (1 << 19), 1.0, PAST + number)
        if several:
            shard.push(f"id-{number:02}", b"other", 2.0)
    if where == "morgue":
        shard.actions.kill(f"id-{number:02}" for number in range(20))
    shard.redis.config_resetstat()
    jobs = alone.page("morgue" if where == "morgue" else "due", limit=20).jobs
    calls = {name: row["calls"] for name, row in shard.redis.info("commandstats").items()}
    assert len(jobs) == 20
    assert (calls["cmdstat_hget"] - 2 * 20, calls["cmdstat_hstrlen"]) == (9, 11)  # errors and deaths are hashes too
    assert calls.get("cmdstat_zrange", 0) == (9 if several else 0)


# ── pages in order ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_due_jobs_are_listed_the_first_due_first(work, previews):
    work.perform_async([{"id": f"id-{n:02}", "perform_in": PAST + n} for n in range(30)])
    found = pages(previews, "due", limit=7)
    assert [len(page.jobs) for page in found] == [7, 7, 7, 7, 2]
    assert [id for page in found for id in ids(page)] == [f"id-{n:02}" for n in range(30)]
    assert {job.where for page in found for job in page.jobs} == {"queue"}
    assert {page.scanned for page in found} == {None}


def test_retries_are_listed_those_that_failed_most_first(previews, shard_with, work):
    for number in range(20):
        fail(shard_with(f"id-{number}"), **{f"id-{number}": number % 7})
    push(work, ["fresh"])
    jobs = [job for page in pages(previews, "retries", limit=6) for job in page.jobs]
    assert [job.retry_count for job in jobs] == sorted((number % 7 for number in range(20)), reverse=True)
    assert Counter(job.id for job in jobs) == Counter(f"id-{number}" for number in range(20))
    assert jobs[0].error == "error 6"


def test_retries_of_one_count_are_listed_alone(previews, shard_with):
    for number in range(20):
        fail(shard_with(f"id-{number}"), **{f"id-{number}": number % 4})
    for count in range(4):
        jobs = [job for page in pages(previews, "retries", limit=2, retry_count=count) for job in page.jobs]
        assert sorted(job.id for job in jobs) == sorted(f"id-{n}" for n in range(20) if n % 4 == count)
        assert {job.retry_count for job in jobs} == {count}
    for count in (4, -1, 10**30, -(10**30)):
        assert previews.page("retries", retry_count=count).jobs == []


def test_a_retry_count_means_nothing_elsewhere(work, previews):
    push(work, ["a"])
    assert ids(previews.page("due", retry_count=5)) == ["a"]


def test_a_cursor_of_all_retries_is_refused_for_those_of_one_count(previews, shard_with):
    for number in range(6):
        fail(shard_with(f"id-{number}"), **{f"id-{number}": number})
    cursor = previews.page("retries", limit=2).next
    with pytest.raises(ValueError, match="take the one that its last page gave"):
        previews.page("retries", cursor=cursor, retry_count=1)


def test_the_morgue_is_listed_the_newest_first(work, previews):
    push(work, [f"id-{n}" for n in range(10)])
    for n in range(10):
        work.actions.kill([f"id-{n}"])
    jobs = [job for page in pages(previews, "morgue", limit=3) for job in page.jobs]
    assert [job.id for job in jobs] == [f"id-{n}" for n in range(9, -1, -1)]
    assert {(job.where, job.retry_count, job.error) for job in jobs} == {("morgue", -1, "moved to the morgue by hand")}


def test_more_jobs_than_one_fetch_takes_are_listed_in_order(shard, alone):
    shard.push_all(*((f"id-{n:03}", b"p", 1.0, PAST + n) for n in range(250)))
    assert ids(alone.page("due", limit=250)) == [f"id-{n:03}" for n in range(250)]


def test_a_job_that_goes_while_its_page_is_read_is_left_out(app, shard, alone):
    """It is in the index that was read, and no longer there when it is fetched."""
    shard.push("a", perform_in=PAST)
    app.redis().zadd(shard.key("due"), {"gone": PAST + 1})
    shard.push("b", perform_in=PAST + 2)
    assert ids(alone.page("due")) == ["a", "b"]
    app.redis().zadd(shard.key("morgue"), {"gone": PAST + 1})
    assert alone.page("morgue").jobs == []


@pytest.mark.parametrize("view", ["nope", "", "queue", "claim", "Due"])
def test_an_unknown_view_is_refused_with_those_there_are(alone, view):
    with pytest.raises(ValueError, match="there are due, retries, morgue"):
        alone.page(view)
    with pytest.raises(ValueError, match="there are due, retries, morgue"):
        alone.page(view, pattern="*")


def test_an_empty_queue_has_an_empty_page(previews):
    for view in ("due", "retries", "morgue"):
        assert (previews.page(view).jobs, previews.page(view).next) == ([], None)
        page = previews.page(view, pattern="*")
        assert (page.jobs, page.next, page.scanned) == ([], None, 0)
    assert previews.in_flight() == []
    assert previews.errors() == previews.errors("due") == previews.errors("morgue") == ([], 0, 0)


# ── searches ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("limit", [1, 25, 1000])
def test_pages_of_a_search_together_find_every_match_once(work, previews, limit):
    push(work, range(20_000))
    found = pages(previews, "due", pattern="*77*", limit=limit)
    met = Counter(id for page in found for id in ids(page))
    assert met == Counter(str(n) for n in range(20_000) if "77" in str(n))
    assert sum(page.scanned for page in found) == pytest.approx(20_000, rel=0.5)


def test_a_page_of_a_search_looks_at_a_bounded_number_of_ids(work, previews):
    push(work, range(20_000))
    found = pages(previews, "due", pattern="no-such-*")
    assert [page.jobs for page in found] == [[]] * len(found)
    assert {page.scanned for page in found[:-1]} == {SEARCHED_A_PAGE}
    assert len(found) > 2


def test_a_page_of_a_search_ends_soon_after_enough_were_found(work, previews):
    push(work, range(5_000))
    page = previews.page("due", pattern="*", limit=10)
    assert 10 <= len(page.jobs) < 2_000
    assert page.next is not None
    assert page.scanned <= 1_000


def test_a_search_lists_jobs_as_they_are(shard_with, previews):
    fail(shard_with("id-1"), **{"id-1": 3})
    (job,) = previews.page("retries", pattern="id-*").jobs
    assert (job.id, job.where, job.retry_count, job.error) == ("id-1", "queue", 3, "error 3")
    shard_with("id-1").actions.kill(["id-1"])
    (job,) = previews.page("morgue", pattern="id-*").jobs
    assert (job.where, job.error) == ("morgue", "error 3")
    assert previews.page("retries", pattern="id-*").jobs == []


def test_a_group_of_errors_is_listed(shard_with, previews):
    for number in range(40):
        fail(shard_with(f"id-{number}"), **{f"id-{number}": number % 2 * 10})
    fail(shard_with("other"), other=1)
    shard_with("other").redis.hset(shard_with("other").key("errors"), "other", "another kind")
    met = [id for page in pages(previews, "retries", error="error #", limit=5) for id in ids(page)]
    assert sorted(met) == sorted(f"id-{number}" for number in range(40))
    assert sorted(ids(previews.page("retries", error="error #", pattern="id-1?", limit=100))) == [
        f"id-{number}" for number in range(10, 20)
    ]
    assert ids(previews.page("retries", error="another kind", limit=100)) == ["other"]
    assert previews.page("retries", error="error 10", limit=100).jobs == []
    assert ids(previews.page("retries", error="another kind", pattern="other", limit=100)) == ["other"]
    assert previews.page("retries", error="error #", pattern="other", limit=100).jobs == []


def test_one_id_is_found_without_a_search(work, previews, monkeypatch):
    push(work, range(2_000))
    monkeypatch.setattr(Previews, "_matching", lambda *_: pytest.fail("searched"))
    for id in ("0", "1234", "1999"):
        page = previews.page("due", pattern=id)
        assert (ids(page), page.next) == ([id], None)
    assert ids(previews.page("due", pattern="2000")) == []


def test_one_id_is_found_only_in_the_view_that_was_asked_for(shard_with, previews):
    shard_with("fresh").push("fresh")
    fail(shard_with("failed"), failed=0)
    shard_with("dead").push("dead")
    shard_with("dead").actions.kill(["dead"])
    found = {
        (view, id)
        for view in ("due", "retries", "morgue")
        for id in ("fresh", "failed", "dead")
        if previews.page(view, pattern=id).jobs
    }
    assert found == {("due", "fresh"), ("due", "failed"), ("retries", "failed"), ("morgue", "dead")}


@pytest.mark.parametrize("text", ["", "x" * 600, "é" * 300, "\ud800"])
def test_a_search_for_what_cannot_be_an_id_finds_nothing(work, previews, text):
    push(work, ["a"])
    page = previews.page("due", pattern=text)
    assert (page.jobs, page.next) == ([], None)
    assert previews.count(Match("due", text)) == (0, False)


BAD_PLACES = [
    "nan:0", "0", ":", "0:", ":0", "-1:0", "0:-1", "0:0:0", "1.5:0", "0x1:0", "0:1e3", "1" * 10 + ":0", "0:" + "9" * 21,
    "0:18446744073709551616", "0:99999999999999999999", "0:0\n", " 0:0", "0:0\x00", "\x00", "0:\u0663", "é", "\ud800",
    "5.0:1:1", "x" * 100_000, "0:0 MATCH *",
]  # fmt: skip


@pytest.mark.parametrize("cursor", BAD_PLACES, ids=lambda text: ascii(text[:20]))
def test_what_is_no_cursor_of_a_search_is_refused_with_a_way_out(work, previews, cursor):
    push(work, ["a"])
    with pytest.raises(ValueError, match="is no cursor of a search: take the one that the last page gave") as caught:
        previews.page("due", pattern="*", cursor=cursor)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("cursor", ["0:18446744073709551615", "999999999:0", "2:12345", "0:7"])
def test_a_cursor_of_a_search_that_nobody_gave_does_no_harm(work, previews, cursor):
    push(work, range(2_000))
    met = ids(previews.page("due", pattern="*", cursor=cursor))
    assert set(met) <= {str(n) for n in range(2_000)}


# ── counts ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_jobs_are_counted(work, previews, shard_with):
    push(work, range(3_000))
    assert previews.count(Match("due")) == (3_000, False)
    assert previews.count(Match("due", "*")) == (3_000, False)
    assert previews.count(Match("due", "*9")) == (300, False)
    assert previews.count(Match("due", "17")) == (1, False)
    assert previews.count(Match("due", "no-*")) == previews.count(Match("due", "no")) == (0, False)
    assert previews.count(Match("retries")) == previews.count(Match("morgue", "*")) == (0, False)


def test_a_count_of_a_group_of_errors_looks_at_the_errors(shard_with, previews):
    for number in range(10):
        fail(shard_with(f"id-{number}"), **{f"id-{number}": number})
    shard_with("fresh").push("fresh")
    assert previews.count(Match("retries", error="error #")) == (10, False)
    assert previews.count(Match("retries", "id-3", "error #")) == (1, False)
    assert previews.count(Match("retries", error="other")) == (0, False)
    assert previews.count(Match("due", error="")) == (1, False)


def test_a_count_that_stopped_says_at_least(work, previews):
    push(work, range(10_000))
    count, is_more = previews.count(Match("due", "*"), most=2_000)
    assert is_more
    assert 1_000 <= count < 5_000
    assert previews.count(Match("due", "none-*"), most=2_000) == (0, True)
    # All without a pattern are counted by Redis.
    assert previews.count(Match("due"), most=10) == (10_000, False)


def test_a_count_that_ends_with_its_limit_is_exact(work, previews):
    push(work, range(30))
    assert previews.count(Match("due", "*"), most=30) == (30, False)


# ── in flight ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_jobs_in_flight_are_listed(shard_with, previews, work):
    push(work, [f"id-{n}" for n in range(30)])
    for shard in {shard_with(f"id-{n}") for n in range(30)}:
        shard.lease().claim(limit=3)
    jobs = previews.in_flight()
    assert len(jobs) == 3 * SHARDS
    assert {job.where for job in jobs} == {"claim"}
    assert {job.shard for job in jobs} == set(range(SHARDS))
    assert len(previews.in_flight(limit=4)) == 4
    assert previews.in_flight(limit=0) == []


def test_a_job_in_flight_may_hold_several_payloads(shard, alone):
    shard.push_payloads("a", 5)
    shard.lease().claim(max_payloads=3)
    (job,) = alone.in_flight()
    assert (job.payload_count, [payload.data for payload in job.payloads]) == (3, [b"0"])
    assert [(job.where, job.payload_count) for job in alone.job("a")] == [("queue", 2), ("claim", 3)]


# ── errors, and what is ahead ───────────────────────────────────────────────────────────────────────────────────────


def test_errors_are_grouped_the_largest_group_first(shard_with, previews):
    for number in range(9):
        fail(shard_with(f"id-{number}"), **{f"id-{number}": number})
    fail(shard_with("odd"), odd=1)
    shard_with("odd").redis.hset(
        shard_with("odd").key("errors"), "odd", 'Traceback (most recent call last):\n  File "x", line 3\nKeyError: 7'
    )
    groups, looked_at, there_are = previews.errors()
    assert [(group.text, group.count) for group in groups] == [("error #", 9), ("KeyError: #", 1)]
    assert (groups[1].example_id, looked_at, there_are) == ("odd", 10, 10)
    assert groups[0].example_id in {f"id-{number}" for number in range(9)}


def test_a_larger_group_comes_first_although_it_was_met_later(shard, alone):
    fail(shard, odd=9, a=0, b=0, c=0)
    shard.redis.hset(shard.key("errors"), "odd", "another kind")
    assert [(group.text, group.count) for group in alone.errors()[0]] == [("error #", 3), ("another kind", 1)]


def test_errors_of_the_morgue_are_grouped(shard_with, previews):
    for id in ("a", "b"):
        shard_with(id).push(id)
        shard_with(id).actions.kill([id])
    assert [(group.text, group.count) for group in previews.errors("morgue")[0]] == [("moved to the morgue by hand", 2)]
    assert previews.errors("retries") == ([], 0, 0)


def test_errors_are_a_sample_of_every_shard_and_say_so(work, previews, shard_with, monkeypatch):
    monkeypatch.setattr(previews_module, "SAMPLED_ERRORS", 30)
    push(work, range(300))
    work.actions.kill(range(300))
    groups, looked_at, there_are = previews.errors("morgue")
    assert [(group.text, group.count) for group in groups] == [("moved to the morgue by hand", 30)]
    assert (looked_at, there_are) == (30, 300)


@pytest.mark.parametrize(
    ("filled", "from_shards"), [(1, "a"), (3, "abc"), (4, "ac"), (5, "ace"), (7, "adg"), (9, "adg")]
)
def test_errors_of_many_shards_are_those_of_some_all_over(app, monkeypatch, filled, from_shards):
    """Of every second or third shard, say, not of the first ones."""
    monkeypatch.setattr(previews_module, "SAMPLED_ERRORS", 6)
    monkeypatch.setattr(previews_module, "SAMPLED_SHARDS", 3)
    shards = [ShardDriver(app, index=index, shards_count=10) for index in range(10)]
    for name, shard in zip("abcdefghi"[:filled], shards, strict=False):
        fail(shard, x=1, y=1)
        shard.redis.hset(shard.key("errors"), mapping={"x": name, "y": name})
    previews = Previews(app.caller, [shard.shard for shard in shards], load_error=str, max_id_bytes=512)
    groups, looked_at, there_are = previews.errors()
    assert {group.text: group.count for group in groups} == dict.fromkeys(from_shards, 2)
    assert (looked_at, there_are) == (2 * len(from_shards), 2 * filled)


def test_what_cannot_be_loaded_is_told_as_it_is_stored(app, shard):
    """With errors that are stored compressed, Lowkiq's own are not: a job buried by hand must not break the page."""

    def load(text):
        return zlib.decompress(bytes.fromhex(text)).decode()

    shard.push_all(("a", b"p", 1.0, PAST), ("b",))
    lease = shard.lease()
    lease.claim(limit=1)
    lease.exhaust("a", zlib.compress(b"error 5").hex())
    shard.actions.kill(["b"])
    previews = Previews(app.caller, [shard.shard], load_error=load, max_id_bytes=512)
    assert {job.id: job.error for job in previews.page("morgue").jobs} == {
        "a": "error 5",
        "b": "moved to the morgue by hand",
    }
    assert previews.job("b")[0].error == "moved to the morgue by hand"
    assert {group.text for group in previews.errors("morgue")[0]} == {"error #", "moved to the morgue by hand"}
    assert previews.count(Match("morgue", error="error #")) == (1, False)


def test_jobs_ahead_are_those_of_its_shard_that_are_due_before_it(work, previews, shard_with):
    work.perform_async([{"id": f"id-{n:02}", "perform_in": PAST + n} for n in range(40)])
    ahead = Counter()
    for n in range(40):
        index = shard_with(f"id-{n:02}").shard.index
        assert previews.ahead(f"id-{n:02}") == ahead[index]
        ahead[index] += 1
    assert previews.ahead("ghost") is None


def test_a_job_in_flight_or_in_the_morgue_has_none_ahead(shard, alone):
    shard.push_all(("a", b"p", 1.0, PAST), ("b", b"p", 1.0, PAST + 1))
    shard.actions.kill(["b"])
    shard.lease().claim()
    assert alone.ahead("a") is alone.ahead("b") is None


def test_a_look_changes_nothing(shard, alone, app):
    fail(shard, a=1, b=2)
    shard.push_payloads("c", 5)
    shard.actions.kill(["b"])
    shard.lease().claim()
    before = shard.dump()
    for view in ("due", "retries", "morgue"):
        alone.page(view)
        alone.page(view, pattern="*")
        alone.errors(view)
        alone.count(Match(view, "*"))
    alone.job("a"), alone.in_flight(), alone.ahead("a")
    assert shard.dump() == before


def test_the_shards_count_of_a_look_is_that_of_its_shards(make_app, work, previews):
    """A look with another one would look in the wrong shards; a push with it is refused."""
    push(work, ["a"])
    other = make_app().worker(queue_name="q", shards_count=SHARDS + 1)(lambda _: None)
    with pytest.raises(ShardsCountMismatch):
        push(other, ["a"])
    assert len(previews.job("a")) == 1
