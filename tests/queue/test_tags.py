"""Tags: they are of an id, go where its payloads go, are found, counted, bounded, and gone with it."""

from __future__ import annotations

import pytest

from lowkiq import InvalidJob
from lowkiq.admin.jobs.search import Match, Search
from lowkiq.admin.jobs.tags import TagCount
from lowkiq.job import encode_jobs
from tests import mutants

WRONG = {
    "tags must be a list of words": "eu",
    "tags are 0": [],
    "tags are 21": [str(n) for n in range(21)],
    "a tag must be a string": [7],
    "it must have 1 to 100": ["x" * 101],
    "can't be printed": ["a\nb"],
}


@pytest.fixture
def work(app):
    @app.worker(queue_name="q", shards_count=3)
    def work(id, payloads): ...

    return work


def push(work, id, *tags, **more):
    work.perform_async([{"id": id, "payload": 1, "tags": list(tags), **more}])


def test_what_can_be_no_tags_is_refused_before_anything_is_written():
    for text, tags in WRONG.items():
        with pytest.raises(InvalidJob, match=f"^job 0 .*{text}"):
            encode_jobs([{"id": "a", "tags": tags}], lambda _: b"", max_id_bytes=9, max_payload_bytes=9)


def test_tags_are_found_counted_and_bounded_in_number(work, monkeypatch):
    push(work, "a", "eu", "vip")
    push(work, "a", "new", "eu")
    push(work, "b", "eu")
    work.perform_async([{"id": "c"}])
    found = {job.id: job.tags for job in work.queries.find(tag="eu")}
    assert found == {"a": ("eu", "vip", "new"), "b": ("eu",)}
    assert [job.id for job in work.queries.find("a*", tag="eu")] == ["a"]
    assert work.queries.top(2) == [TagCount("eu", 2), TagCount("new", 1)]
    push(work, "a", *(f"t{n}" for n in range(20)))
    (job,) = work.queries.fetch(["a"])
    assert len(job.tags) == 20 and job.tags[:4] == ("eu", "vip", "new", "t0")
    assert [job.id for job in work.queries.find(tag="t19")] == []
    with pytest.raises(ValueError, match="find what"):
        list(work.queries.find())


def test_only_so_many_tags_of_a_shard_are_known_and_all_are_kept(shard, monkeypatch):
    mutants.replace("tags.lua", "local MOST_INDEXED = 1000", "local MOST_INDEXED = 2", monkeypatch)
    for id, tags in (("a", "x"), ("b", "y"), ("c", "z")):
        shard.push(id, tags=tags)
    assert shard.look().zset("tag_counts") == {"x": 1, "y": 1}
    assert shard.queued()["c"].tags == ("z",)
    shard.actions.delete(["a", "b", "c"])
    assert shard.names() <= {"meta"}


def test_an_action_on_all_with_a_tag_leaves_the_others(work, app):
    push(work, "a", "eu")
    push(work, "b", "us")
    search = Search(app.caller, app.shards("q", 3), str)
    match = Match("due", tag="eu")
    assert [step.moved for step in work.actions.sweep(search, "bury", match, 10)][-1] == 1
    assert [job.tags for job in work.queries.morgue_find(tag="eu")] == [("eu",)]
    work.actions.morgue_queue_up(["a"])
    assert [job.id for job in work.queries.find(tag="eu")] == ["a"]
    work.actions.cancel(["a"])
    assert work.queries.top() == [TagCount("us", 1)]


def test_tags_that_come_while_the_id_runs_are_of_what_is_queued_then(shard):
    shard.push("a", b"1", tags="old")
    lease = shard.lease()
    (job,) = lease.claim()
    assert job.tags == ("old",)
    shard.push("a", b"2", tags="new")
    lease.ack("a")
    assert shard.queued()["a"].tags == ("new",)
    shard.look().check_tags()
    (job,) = lease.claim()
    assert job.tags == ("new",)
    shard.push("a", b"3", tags="newer")
    lease.fail("a")
    assert shard.queued()["a"].tags == ("newer", "new")


def test_a_push_whose_reply_was_lost_may_be_repeated(shard):
    for _ in range(2):
        shard.push("a", b"1", 1.0, tags="x")
    assert shard.queued()["a"].tags == ("x",)
    assert shard.look().zset("tag_counts") == {"x": 1}
