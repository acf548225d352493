"""Undo: what was deleted comes back as it was, for a minute, also beside what was pushed since."""

from __future__ import annotations

import pytest

from lowkiq.admin.jobs import undo
from lowkiq.admin.jobs.undo import UndoableActions
from tests.queue.shard_driver import FUTURE, PAST


@pytest.fixture
def actions(app):
    return UndoableActions(app.caller, app.shards("q", 1), max_id_bytes=512)


def test_all_that_was_known_of_a_job_comes_back(shard, actions):
    shard.push_all(("one", b"p", 5.0, FUTURE), ("several", b"p", 7.0, PAST), ("several", b"q", 6.0, PAST))
    shard.push("failed", b"p", perform_in=PAST)
    lease = shard.lease()
    lease.claim()
    lease.fail("failed", retry_count=3, delay=1000, error="boom")
    lease.release("lease")
    shard.push("dead", b"p", 1.0)
    shard.actions.bury(["dead"])
    before, deaths, errors = shard.queued(), shard.morgue(), shard.errors()
    deleted = actions.delete_and_keep("due", ["one", "several", "failed", "nowhere"])
    buried = actions.delete_and_keep("morgue", ["dead"])
    assert (deleted.moved, buried.moved) == (3, 1)
    assert shard.queued() == shard.morgue() == {}
    kept = [key for key in shard.names() if key.startswith("undo:")]
    assert kept
    assert all(0 < shard.redis.ttl(shard.key(key)) <= undo.KEPT_SECONDS for key in kept)
    assert (actions.undo(deleted.undo), actions.undo(buried.undo)) == (3, 1)
    assert (shard.queued(), shard.morgue(), shard.errors()) == (before, deaths, errors)
    assert all(shard.redis.ttl(shard.key(key)) == -1 for key in shard.names()), "nothing that is back is forgotten"
    assert actions.undo(deleted.undo) == 0, "once"


def test_what_was_pushed_since_merges_in_the_order_of_scores(shard, actions):
    shard.push_all(("a", b"1", 1.0, PAST), ("a", b"2", 2.0, PAST), ("b", b"1", 9.0, PAST))
    deleted = actions.delete_and_keep("due", ["a", "b"])
    shard.push_all(("a", b"3", 3.0, FUTURE), ("a", b"2", 0.5, FUTURE), ("b", b"1", 4.0, FUTURE))
    assert actions.undo(deleted.undo) == 2
    jobs = shard.queued()
    assert jobs["a"].payloads == {b"1": 1.0, b"2": 2.0, b"3": 3.0}
    assert jobs["b"].payloads == {b"1": 9.0}
    assert jobs["a"].perform_in == PAST


def test_too_much_is_deleted_without_a_way_back(shard, actions, monkeypatch):
    monkeypatch.setattr(undo, "MOST_BYTES", 1_000)
    shard.push_all(*((f"{number}", b"x" * 100) for number in range(20)))
    ids = [str(number) for number in range(20)]
    assert actions.can_keep("due", ids[:9])
    assert not actions.can_keep("due", ids)
    deleted = actions.delete_and_keep("due", ids)
    assert (deleted.moved, deleted.undo) == (20, None)
    with pytest.raises(ValueError, match="is no deletion"):
        actions.undo("../x")


def test_deaths_checkpoint_and_tags_come_back(shard, actions):
    shard.push("a", b"p", tags="red\nround")
    lease = shard.lease()
    lease.claim()
    lease.checkpoint("a", b"half")
    shard.lease("b", dead=["a"]).release("lease")
    shard.lease("c").release("lease")
    shard.push("dead", b"p", tags="blue")
    shard.actions.bury(["dead"])
    before, look = shard.queued(), shard.look()
    known = {name: look.hash(name) for name in ("crashes", "checkpoints", "tags", "morgue:tags")}
    assert all(known.values())
    deleted = [actions.delete_and_keep("due", ["a"]), actions.delete_and_keep("morgue", ["dead"])]
    shard.look().check_tags()
    assert not any(shard.look().hash(name) for name in known)
    assert [actions.undo(some.undo) for some in deleted] == [1, 1]
    assert shard.queued() == before
    assert {name: shard.look().hash(name) for name in known} == known
    shard.look().check_tags()


def test_a_deletion_that_is_repeated_is_kept_as_it_was(shard, actions):
    """Its reply was lost; what was pushed since is no part of it."""
    shard.push("a", b"1", 1.0, PAST)
    words = ["queue", "0" * 16, 60, "a"]
    assert shard.call("put_away", shard.shard.layout, *words) == [1, 1]
    shard.push("a", b"2", 2.0, PAST)
    assert shard.call("put_away", shard.shard.layout, *words) == [0, 1]
    assert actions.undo("0" * 16) == 1
    assert shard.queued()["a"].payloads == {b"1": 1.0, b"2": 2.0}


def test_a_deletion_whose_first_reply_was_lost_can_be_undone_all_the_same(shard, actions, monkeypatch):
    shard.push_all(("a", b"p", 1.0, PAST), ("b", b"p", 1.0, PAST))
    run = actions._caller.run
    monkeypatch.setattr(actions._caller, "run", lambda call: (run(call), run(call))[1])
    deleted = actions.delete_and_keep("due", ["a", "b", "nowhere"])
    assert deleted.moved == 2
    monkeypatch.undo()
    assert actions.undo(deleted.undo) == 2
    assert set(shard.queued()) == {"a", "b"}


def test_what_has_lapsed_in_part_is_not_half_there(shard, actions):
    """The payloads of a job may lapse a moment before the rest that is known of it."""
    shard.push_all(("a", b"1", 1.0, PAST), ("a", b"2", 2.0, PAST), ("b", b"1", 1.0, PAST))
    deleted = actions.delete_and_keep("due", ["a", "b"])
    shard.redis.delete(shard.key(f"undo:{deleted.undo}:a"))
    assert actions.undo(deleted.undo) == 1
    assert list(shard.queued()) == ["b"]


def test_what_happens_is_told(app, shard, actions):
    app.queues()
    shard.push_all(("a", b"1"), ("b", b"1"))
    shard.actions.bury(["b"])
    shard.actions.track(["a", "b"])
    deleted = [actions.delete_and_keep("due", ["a"]), actions.delete_and_keep("morgue", ["b"])]
    shard.push("a", b"2")
    assert [actions.undo(some.undo) for some in deleted] == [1, 1]
    notes = {id: shard.redis.lrange(shard.key(f"tracked:{id}"), 0, -1) for id in ("a", "b")}
    assert [note.split()[0] for note in notes["a"]] == [b"deleted", b"pushed", b"pushed"]
    assert [note.split()[0] for note in notes["b"]] == [b"deleted", b"buried"]
    assert notes["a"][-1].endswith(b"put back, merged")
    assert notes["b"][-1].endswith(b"put back")
