"""Actions: what an operator does to a whole queue of several shards."""

from __future__ import annotations

from operator import attrgetter

import pytest

from tests.admin.conftest import SHARDS
from tests.queue.shard_driver import FUTURE

#: More than two chunks a shard.
MANY = 700


def fill(work, count=MANY, **fields):
    work.perform_async([{"id": n, "payload": n, "score": 1.0} | fields for n in range(count)])


def fail_half(shards):
    """Every other job fails, the rest is released."""
    for shard in shards:
        lease = shard.lease()
        jobs = lease.claim()
        for job in jobs[::2]:
            lease.fail(job.id, delay=1000)
        lease.release("lease")
    return sum(len([job for job in shard.queued().values() if job.retry_count == 0]) for shard in shards)


def total(shards, name):
    return sum(len(getattr(shard, name)()) for shard in shards)


def test_all_jobs_are_performed_now_and_those_that_are_due_keep_their_place(work, shards):
    fill(work, perform_in=FUTURE)
    assert work.actions.perform_all_jobs_now() == MANY
    assert all(job.perform_in <= shard.now() for shard in shards for job in shard.queued().values())
    before = shards[0].jobs()
    assert work.actions.perform_all_jobs_now() == 0
    assert shards[0].jobs() == before


def test_all_failed_jobs_are_buried_or_deleted(work, shards):
    fill(work)
    failed = fail_half(shards)
    assert work.actions.kill_all_failed_jobs() == failed
    assert (total(shards, "queued"), total(shards, "morgue")) == (MANY - failed, failed)
    assert all(dead.error == "boom" for shard in shards for dead in shard.morgue().values())
    again = fail_half(shards)
    assert work.actions.delete_all_failed_jobs() == again
    assert [total(shards, name) for name in ("queued", "morgue", "errors")] == [MANY - failed - again, failed, 0]
    assert work.actions.kill_all_failed_jobs() == 0


def test_all_of_the_morgue_is_queued_up_or_deleted(work, shards):
    fill(work)
    work.actions.bury(range(MANY))
    assert work.actions.morgue_queue_up_all_jobs() == MANY
    assert (total(shards, "queued"), total(shards, "morgue")) == (MANY, 0)
    assert work.actions.morgue_queue_up_all_jobs() == 0
    work.actions.bury(range(MANY))
    assert work.actions.morgue_delete_all_jobs() == MANY
    assert [shard.names() for shard in shards] == [{"meta"}] * SHARDS


@pytest.mark.parametrize(
    ("action", "where"),
    [("delete", "queued"), ("bury", "queued"), ("morgue_delete", "morgue"), ("morgue_queue_up", "morgue")],
)
def test_an_action_touches_only_the_ids_it_is_given(work, shards, action, where):
    fill(work, count=20)
    if where == "morgue":
        work.actions.bury(range(20))
    assert getattr(work.actions, action)([3, "5", "ghost", 3]) == 2
    left = {id for shard in shards for id in getattr(shard, where)()}
    assert left == {str(n) for n in range(20)} - {"3", "5"}


def test_perform_now_touches_only_the_ids_it_is_given(work, shards):
    fill(work, count=20, perform_in=FUTURE)
    assert work.actions.perform_now([3, "5", "ghost"]) == 2
    due = {id for shard in shards for id, job in shard.queued().items() if job.perform_in < FUTURE}
    assert due == {"3", "5"}


def test_a_job_with_more_payloads_than_a_step_is_moved_whole(work, shards):
    for part in range(2):
        work.perform_async([{"id": "a", "payload": [part, n]} for n in range(1500)])
        assert work.actions.bury(["a"]) == 1
    assert sum(len(dead.payloads) for shard in shards for dead in shard.morgue().values()) == 3000
    work.perform_async([{"id": "a", "payload": [2, n]} for n in range(1500)])
    assert work.actions.morgue_queue_up(["a"]) == 1
    assert sum(len(job.payloads) for shard in shards for job in shard.queued().values()) == 4500


def test_jobs_in_hand_are_not_touched(work, shards):
    fill(work, count=20)
    leases = [shard.lease() for shard in shards]
    for lease in leases:
        lease.claim()
    before = [shard.claimed() for shard in shards]
    actions = work.actions
    assert actions.delete(range(20)) == actions.bury(range(20)) == actions.perform_all_jobs_now() == 0
    assert [shard.claimed() for shard in shards] == before


def test_actions_on_nothing_do_nothing(work):
    actions = work.actions
    assert actions.delete([]) == actions.bury([]) == actions.perform_now([]) == actions.morgue_delete([]) == 0
    assert actions.kill_all_failed_jobs() == actions.delete_all_failed_jobs() == actions.morgue_delete_all_jobs() == 0


@pytest.mark.parametrize("ids", ["17", b"17", 17, None])
@pytest.mark.parametrize(
    "deed",
    [
        "actions.delete", "actions.bury", "actions.cancel", "actions.hold", "actions.release", "actions.stop_waiting",
        "actions.perform_now", "actions.retry", "actions.skip", "actions.morgue_queue_up", "actions.morgue_delete",
        "actions.track", "actions.untrack", "actions.behind_newer", "actions.waited_for", "queries.fetch",
        "queries.morgue_fetch",
    ],
)  # fmt: skip
def test_one_id_where_several_are_asked_for_is_refused_and_not_taken_letter_by_letter(work, shards, deed, ids):
    work.perform_async([{"id": id} for id in ("1", "7", "17", 49, 55)])
    with pytest.raises(TypeError, match=rf"ids must be a list, not {ids!r} .*: write \[{ids!r}\]"):
        attrgetter(deed)(work)(ids)
    assert total(shards, "queued") == 5
    assert work.queries.held() == work.queries.tracked() == []


def test_deletions_that_can_be_undone_and_events_take_lists_too(work, shards):
    work.perform_async([{"id": id} for id in ("1", "7", "17")])
    with pytest.raises(TypeError, match="ids must be a list"):
        work.actions.delete_and_keep("due", "17")
    with pytest.raises(TypeError, match="ids must be a list"):
        work.app.events(work.queue_name, ids="17")
    with pytest.raises(TypeError, match=r"kinds must be a list, not 'done': write kinds=\['done'\]"):
        work.app.events(work.queue_name, kinds="done")
    assert total(shards, "queued") == 3
