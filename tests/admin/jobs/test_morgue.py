"""revive, bury and drop: what an operator moves and deletes, and that repeating it changes nothing."""

from __future__ import annotations

import pytest

from lowkiq import Lowkiq
from tests.queue.look import Claimed, Dead, Queued
from tests.queue.shard_driver import FUTURE, PAST

BY_HAND = "moved to the morgue by hand"


def kill(shard, id, payloads):
    """Pushes payloads and moves them to the morgue."""
    shard.push_all(*((id, payload, score, PAST) for payload, score in payloads.items()))
    shard.actions.bury([id])


@pytest.mark.parametrize("count", [1, 3])
def test_a_buried_job_is_in_the_morgue_with_all_its_payloads(shard, count):
    shard.push_payloads("a", count)
    before = shard.now()
    assert shard.call("bury", 1000, "any", "a") == [1]
    assert shard.morgue() == {"a": Dead({b"%d" % n: float(n) for n in range(count)}, BY_HAND)}
    assert before <= shard.redis.zscore(shard.key("morgue"), "a") <= shard.now()
    assert shard.queued() == {}


def test_a_buried_job_takes_its_error_along(shard):
    shard.push("a")
    lease = shard.lease()
    lease.claim()
    lease.fail("a", error="the reason")
    shard.actions.bury(["a"])
    assert shard.morgue()["a"].error == "the reason"
    assert shard.errors() == {}


@pytest.mark.parametrize(
    ("call", "reply", "dead"), [(("bury", 1000, "failed"), [1], ["failed"]), (("drop", "failed"), 1, [])]
)
def test_only_failed_jobs_are_buried_or_dropped_if_asked_so(shard, call, reply, dead):
    shard.push_all(("fresh", b"x", 1.0, FUTURE), ("failed", b"x", 1.0, PAST))
    lease = shard.lease()
    lease.claim()
    lease.fail("failed")
    assert shard.call(*call, "fresh", "failed") == reply
    assert (list(shard.queued()), list(shard.morgue())) == (["fresh"], dead)


@pytest.mark.parametrize(
    ("call", "nothing"),
    [
        (("bury", 1000, "any"), [0]),
        (("revive", 1000), [0]),
        (("perform_now",), 0),
        *((("drop", which), 0) for which in ("queue", "failed", "morgue")),
    ],
)
def test_repeating_it_changes_nothing(shard, call, nothing):
    shard.push_payloads("a", 2)
    shard.push("later", perform_in=FUTURE)
    kill(shard, "b", {b"x": 1.0, b"y": 2.0})
    shard.call(*call, "a", "b", "later")
    before = shard.dump()
    assert shard.call(*call, "a", "b", "later", "ghost") == nothing
    assert shard.dump() == before


@pytest.mark.parametrize(
    ("call", "nothing"),
    [(("bury", 1000, "any"), [0]), *((("drop", which), 0) for which in ("queue", "failed", "morgue"))],
)
def test_a_job_in_hand_is_not_touched(shard, call, nothing):
    shard.push("a", b"x", 1.0, PAST)
    shard.lease().claim()
    assert shard.call(*call, "a") == nothing
    assert shard.claimed() == {"a": Claimed({b"x": 1.0}, PAST)}


@pytest.mark.parametrize("dead", [{b"x": 5.0}, {b"x": 5.0, b"z": 6.0}])
@pytest.mark.parametrize("queued", [{b"x": 4.0}, {b"x": 6.0}, {b"x": 4.0, b"y": 1.0}, {b"y": 1.0}])
def test_equal_payloads_keep_the_higher_score_when_buried(shard, dead, queued):
    kill(shard, "a", dead)
    kill(shard, "a", queued)
    expected = {payload: max(dead.get(payload, -9.0), queued.get(payload, -9.0)) for payload in dead | queued}
    assert shard.morgue() == {"a": Dead(expected, BY_HAND)}


def test_a_large_job_merges_into_a_large_dead_one_in_bounded_steps(shard):
    kill(shard, "a", {b"dead %d" % n: float(n) for n in range(3)})
    shard.push_payloads("a", 7)
    steps = []
    while (reply := shard.call("bury", 3, "any", "a"))[1:]:
        steps.append((len(shard.queued()["a"].payloads), len(shard.morgue()["a"].payloads)))
        assert reply == [0, b"a"]
    assert reply == [1]
    assert steps == [(4, 6), (1, 9)]
    assert len(shard.morgue()["a"].payloads) == 10
    assert shard.queued() == {}


@pytest.mark.parametrize("count", [1, 3])
def test_a_revived_job_is_fresh_and_due_now(shard, count):
    payloads = {b"%d" % n: float(n) for n in range(count)}
    kill(shard, "a", payloads)
    before = shard.now()
    assert shard.call("revive", 1000, "a") == [1]
    job = shard.queued()["a"]
    assert job == Queued(payloads, job.perform_in)
    assert before <= job.perform_in <= shard.now()
    assert shard.morgue() == {}
    assert shard.names() == {"meta", "due", "payloads"} | ({"payloads:a"} if count > 1 else set())


def test_a_revived_job_merged_with_a_queued_one_is_fresh_and_due_now(shard):
    shard.push("a", b"y", 2.0)
    lease = shard.lease()
    lease.claim()
    lease.fail("a", retry_count=3, delay=1000)
    shard.actions.bury(["a"])
    shard.push("a", b"x", 1.0)
    lease.claim()
    lease.fail("a", retry_count=7, delay=1000)
    shard.actions.morgue_queue_up(["a"])
    job = shard.queued()["a"]
    assert (job.payloads, job.retry_count, job.error) == ({b"x": 1.0, b"y": 2.0}, -1, "boom")
    assert job.perform_in <= shard.now()


@pytest.mark.parametrize("dead", [{b"x": 5.0}, {b"x": 5.0, b"z": 6.0}])
@pytest.mark.parametrize("queued", [{b"x": 4.0}, {b"x": 6.0}, {b"x": 4.0, b"y": 1.0}, {b"y": 1.0}])
def test_equal_payloads_keep_the_higher_score_when_revived(shard, dead, queued):
    kill(shard, "a", dead)
    shard.push_all(*(("a", payload, score, PAST) for payload, score in queued.items()))
    shard.actions.morgue_queue_up(["a"])
    expected = {payload: max(dead.get(payload, -9.0), queued.get(payload, -9.0)) for payload in dead | queued}
    assert shard.queued()["a"].payloads == expected


def test_a_large_dead_job_merges_into_a_large_queued_one_in_bounded_steps(shard):
    kill(shard, "a", {b"dead %d" % n: float(n) for n in range(7)})
    shard.push_payloads("a", 2)
    assert shard.call("revive", 3, "a") == [0, b"a"]
    assert sorted(shard.morgue()["a"].payloads) == [b"dead 3", b"dead 4", b"dead 5", b"dead 6"]
    assert sorted(shard.queued()["a"].payloads) == [b"0", b"1", b"dead 0", b"dead 1", b"dead 2"]
    assert shard.call("revive", 3, "a") == [0, b"a"]
    assert shard.call("revive", 3, "a") == [1]
    assert len(shard.queued()["a"].payloads) == 9
    assert shard.morgue() == {}


def test_many_jobs_are_revived_at_once(shard):
    shard.push_all(*((f"id-{n}", b"x", 1.0) for n in range(500)))
    ids = list(shard.queued())
    assert shard.actions.bury(ids) == 500
    assert shard.actions.morgue_queue_up([*ids, "ghost"]) == 500
    assert len(shard.queued()) == 500
    assert shard.morgue() == {}


@pytest.mark.parametrize("count", [1, 3])
def test_a_dropped_job_is_gone(shard, count):
    shard.push_payloads("a", count)
    lease = shard.lease()
    lease.claim()
    lease.fail("a")
    assert shard.call("drop", "queue", "a", "ghost") == 1
    assert shard.names() == {"meta", "owner"}
    shard.push_payloads("a", count)
    shard.actions.bury(["a"])
    assert shard.call("drop", "morgue", "a", "ghost") == 1
    assert shard.names() == {"meta", "owner"}


def test_a_drop_of_the_queue_leaves_the_morgue_and_the_reverse(shard):
    kill(shard, "a", {b"dead": 1.0})
    shard.push("a", b"x", 1.0, PAST)
    shard.call("drop", "queue", "a")
    assert (list(shard.queued()), list(shard.morgue())) == ([], ["a"])
    shard.push("a", b"x", 1.0, PAST)
    shard.call("drop", "morgue", "a")
    assert (list(shard.queued()), list(shard.morgue())) == (["a"], [])


@pytest.mark.parametrize("action", ["delete", "bury"])
def test_a_job_that_leaves_the_queue_leaves_no_crashes(shard, action):
    """A job of that id pushed later has killed nobody yet."""
    shard.push("a")
    shard.lease("a").claim()
    shard.lease("b", dead=["a"])
    assert shard.crashes() == {"a": 1}
    getattr(shard.actions, action)(["a"])
    assert shard.crashes() == {}


@pytest.mark.parametrize("action", ["delete", "bury"])
def test_a_job_in_hand_keeps_its_crashes(shard, action):
    """The bound on deaths holds whatever happens to what was queued meanwhile."""
    shard.push("a")
    shard.lease("a").claim()
    shard.lease("b", dead=["a"]).claim()
    shard.push("a")
    getattr(shard.actions, action)(["a"])
    assert shard.crashes() == {"a": 1}


@pytest.mark.parametrize("action", ["delete", "bury"])
def test_a_job_in_hand_keeps_its_error(shard, action):
    """Whatever happens to what was queued meanwhile."""
    shard.push("a")
    lease = shard.lease("a")
    lease.claim()
    lease.fail("a", retry_count=2, delay=0)
    lease.claim()
    shard.push("a")
    getattr(shard.actions, action)(["a"])
    lease.release("claim")
    assert (shard.queued()["a"].retry_count, shard.queued()["a"].error) == (2, "boom")


def test_a_job_is_made_due_as_it_is(shard):
    shard.push("a")
    lease = shard.lease()
    lease.claim()
    lease.fail("a", retry_count=3, delay=1000)
    before = shard.now()
    assert shard.call("perform_now", "a", "ghost") == 1
    job = shard.queued()["a"]
    assert before <= job.perform_in <= shard.now()
    assert (job.retry_count, job.error) == (3, "boom")


def test_a_job_that_is_due_keeps_its_place(shard):
    shard.push("a", b"x", 1.0, PAST)
    before = shard.dump()
    assert shard.call("perform_now", "a") == 0
    assert shard.dump() == before


def test_a_worker_s_morgue_finds_revives_and_deletes(app: Lowkiq) -> None:
    work = app.worker(queue_name="work")(lambda batch: None)
    work.perform_async([{"id": id, "tags": ["eu"] if id == "b" else ["us"]} for id in "abcde"])
    assert work.actions.bury(["a", "b", "c"]) == 3
    assert work.actions.bury(["d"]) == 1
    assert [job.id for job in work.morgue.fetch(["b", "e", "a"])] == ["b", "a"]
    assert sorted(job.id for job in work.morgue.find("*")) == ["a", "b", "c", "d"]
    assert [job.id for job in work.morgue.find("?", tag="eu")] == ["b"]
    assert [job.id for job in work.morgue.newest(1)] == ["d"]
    assert work.morgue.behind_newer(["a"]) == []
    assert (work.morgue.revive(["a", "e"]), work.morgue.delete(["b"])) == (1, 1)
    assert (work.morgue.revive_all(), work.morgue.delete_all()) == (2, 0)
    assert [job.id for job in work.queries.fetch([*"abcde"])] == ["a", "c", "d", "e"]
    assert work.actions.bury(["a"]) == work.morgue.delete_all() == 1
    with pytest.raises(TypeError, match="ids must be a list, not 'a'"):
        work.morgue.revive("a")
