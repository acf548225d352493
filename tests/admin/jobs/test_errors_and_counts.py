"""Counts, jobs in flight, groups of errors, and what is ahead of a job."""

from __future__ import annotations

import zlib
from collections import Counter

import pytest

from lowkiq.admin.jobs import failures
from lowkiq.admin.jobs.previews import Previews
from lowkiq.admin.jobs.search import Match
from tests.admin.conftest import SHARDS, fail, push
from tests.queue.shard_driver import PAST, ShardDriver


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
    push(work, range(30))
    assert previews.count(Match("due", "*"), most=30) == (30, False), "it ends with its limit, and is exact"
    push(work, range(10_000))
    count, is_more = previews.count(Match("due", "*"), most=2_000)
    assert is_more
    assert 1_000 <= count < 5_000
    assert previews.count(Match("due", "none-*"), most=2_000) == (0, True)
    # All without a pattern are counted by Redis.
    assert previews.count(Match("due"), most=10) == (10_000, False)


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


def test_errors_are_grouped_the_largest_group_first(shard_with, previews):
    for number in range(9):
        fail(shard_with(f"id-{number}"), **{f"id-{number}": number})
    fail(shard_with("odd"), odd=1)
    traceback = 'Traceback (most recent call last):\n  File "x", line 3\nKeyError: 7'
    shard_with("odd").redis.hset(shard_with("odd").key("errors"), "odd", traceback)
    groups, looked_at, there_are = previews.errors()
    assert [(group.text, group.count) for group in groups] == [("error #", 9), ("KeyError: #", 1)]
    assert (groups[1].example_id, looked_at, there_are) == ("odd", 10, 10)
    assert groups[0].example_id in {f"id-{number}" for number in range(9)}


def test_a_larger_group_comes_first_although_it_was_met_later(shard, alone):
    fail(shard, odd=9, a=0, b=0, c=0)
    shard.redis.hset(shard.key("errors"), "odd", "another kind")
    assert [(group.text, group.count) for group in alone.errors()[0]] == [("error #", 3), ("another kind", 1)]


def test_errors_are_a_sample_of_every_shard_and_say_so(work, previews, shard_with, monkeypatch):
    monkeypatch.setattr(failures, "SAMPLED_ERRORS", 30)
    push(work, range(300))
    work.actions.bury(range(300))
    groups, looked_at, there_are = previews.errors("morgue")
    assert [(group.text, group.count) for group in groups] == [("moved to the morgue by hand", 30)]
    assert (looked_at, there_are) == (30, 300)
    assert previews.errors("retries") == ([], 0, 0)


@pytest.mark.parametrize(
    ("filled", "from_shards"), [(1, "a"), (3, "abc"), (4, "ac"), (5, "ace"), (7, "adg"), (9, "adg")]
)
def test_errors_of_many_shards_are_those_of_some_all_over(app, monkeypatch, filled, from_shards):
    """Of every second or third shard, say, not of the first ones."""
    monkeypatch.setattr(failures, "SAMPLED_ERRORS", 6)
    monkeypatch.setattr(failures, "SAMPLED_SHARDS", 3)
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
    shard.actions.bury(["b"])
    previews = Previews(app.caller, [shard.shard], load_error=load, max_id_bytes=512)
    errors = {job.id: job.error for job in previews.page("morgue").jobs}
    assert errors == {"a": "error 5", "b": "moved to the morgue by hand"}
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
    shard.actions.bury(["b"])
    shard.lease().claim()
    assert alone.ahead("a") is alone.ahead("b") is None


def test_a_look_changes_nothing(shard, alone, app):
    fail(shard, a=1, b=2)
    shard.push_payloads("c", 5)
    shard.actions.bury(["b"])
    shard.lease().claim()
    before = shard.dump()
    for view in ("due", "retries", "morgue"):
        alone.page(view)
        alone.page(view, pattern="*")
        alone.errors(view)
        alone.count(Match(view, "*"))
    alone.job("a"), alone.in_flight(), alone.ahead("a")
    assert shard.dump() == before


def test_a_look_is_into_the_shards_that_a_queue_has(make_app, work):
    """Whatever number the code of who looks begins with."""
    push(work, ["a"])
    other = make_app().worker(queue_name="q", shards_count=SHARDS + 1)(lambda _: None)
    assert [one.id for one in other.queries.find("a*")] == ["a"]
