"""Pages of a view, in order or of a search, bounded however long the queue."""

from __future__ import annotations

from collections import Counter

import pytest

from lowkiq.admin.jobs.previews import SEARCHED_A_PAGE, Previews
from lowkiq.admin.jobs.search import Match
from tests.admin.conftest import fail, ids, pages, push
from tests.queue.shard_driver import PAST


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


def test_a_cursor_of_all_retries_is_refused_for_those_of_one_count(previews, shard_with):
    for number in range(6):
        fail(shard_with(f"id-{number}"), **{f"id-{number}": number})
    assert len(ids(previews.page("due", retry_count=5))) == 6, "it means nothing elsewhere"
    cursor = previews.page("retries", limit=2).next
    with pytest.raises(ValueError, match="take the one that its last page gave"):
        previews.page("retries", cursor=cursor, retry_count=1)


def test_the_morgue_is_listed_the_newest_first(work, previews):
    push(work, [f"id-{n}" for n in range(10)])
    for n in range(10):
        work.actions.bury([f"id-{n}"])
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
    with pytest.raises(ValueError, match="there are waiting, scheduled, retries, blocked, held, morgue, due"):
        alone.page(view)
    with pytest.raises(ValueError, match="there are waiting, scheduled, retries, blocked, held, morgue, due"):
        alone.page(view, pattern="*")


def test_an_empty_queue_has_an_empty_page(previews):
    for view in ("due", "retries", "morgue"):
        assert (previews.page(view).jobs, previews.page(view).next) == ([], None)
        page = previews.page(view, pattern="*")
        assert (page.jobs, page.next, page.scanned) == ([], None, 0)
    assert previews.in_flight() == []
    assert previews.errors() == previews.errors("due") == previews.errors("morgue") == ([], 0, 0)


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
    shard_with("id-1").actions.bury(["id-1"])
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
    met = ids(previews.page("retries", error="error #", pattern="id-1?", limit=100))
    assert sorted(met) == [f"id-{number}" for number in range(10, 20)]
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
    shard_with("dead").actions.bury(["dead"])
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


def test_a_cursor_of_a_search_that_nobody_gave_does_no_harm(work, previews):
    push(work, range(2_000))
    for cursor in ("0:18446744073709551615", "999999999:0", "2:12345", "0:7"):
        assert set(ids(previews.page("due", pattern="*", cursor=cursor))) <= {str(n) for n in range(2_000)}
