"""Sweep: an action on all that match, in bounded steps, and on nothing that was not counted."""

from __future__ import annotations

import itertools
from typing import get_args

import pytest

from lowkiq.admin.jobs.actions import ACTIONS, CHUNK, ActionName, Actions, Progress, check_action
from lowkiq.admin.jobs.search import Match, Search, View
from lowkiq.admin.jobs.states import INDEXED
from lowkiq.job import shard_of
from lowkiq.queue.shard import Exhausted, Failure
from tests.admin import conftest
from tests.admin.conftest import SHARDS
from tests.queue.shard_driver import FUTURE, PAST

MANY = 2_000
EVERY = [(view, action) for view, actions in ACTIONS.items() for action in actions]


@pytest.fixture
def start(app):
    """Starts a sweep over the queue; `actions` can do something else before each action."""

    def start(action, match, most=1_000_000, actions=None):
        shards = app.shards("q", SHARDS)
        actions = actions or Actions(app.caller, shards, max_id_bytes=512)
        return actions.sweep(Search(app.caller, shards, str), action, match, most)

    return start


@pytest.fixture
def meanwhile(app):
    """Actions before the first of which something happens."""

    def meanwhile(happen):
        once = iter([happen])

        class Late(Actions):
            def act_in(self, *arguments):
                next(once, bool)()
                return super().act_in(*arguments)

        return Late(app.caller, app.shards("q", SHARDS), max_id_bytes=512)

    return meanwhile


def push(work, ids, perform_in=FUTURE):
    conftest.push(work, ids, perform_in=perform_in)


def fail(shards, *ids, error="boom"):
    for id in ids:
        conftest.fail(shards[shard_of(id.encode(), SHARDS)], FUTURE, **{id: error})


def ids_of(shards, name):
    return {id for shard in shards for id in getattr(shard, name)()}


def last(progress):
    *_, last = progress
    return last


def everything(shards):
    return [shard.jobs() for shard in shards]


@pytest.fixture
def mixed(work, shards):
    """A job of each kind: "fresh" and "failed" are queued for later, "dead" is in the morgue, "busy" in flight."""
    push(work, ["dead"])
    work.actions.bury(["dead"])
    fail(shards, "failed")
    push(work, ["fresh"])
    push(work, ["busy"], perform_in=PAST)
    shards[shard_of(b"busy", SHARDS)].lease("n").claim()
    assert ids_of(shards, "queued") == {"fresh", "failed"}
    return shards


@pytest.mark.parametrize(
    ("view", "action", "moved", "queued", "buried", "due_now"),
    [
        ("due", "perform_now", 2, {"fresh", "failed"}, {"dead"}, {"fresh", "failed"}),
        ("due", "bury", 2, set(), {"dead", "fresh", "failed"}, set()),
        ("due", "delete", 2, set(), {"dead"}, set()),
        ("due", "cancel", 2, set(), {"dead"}, set()),
        ("retries", "perform_now", 1, {"fresh", "failed"}, {"dead"}, {"failed"}),
        ("retries", "bury", 1, {"fresh"}, {"dead", "failed"}, set()),
        ("retries", "delete", 1, {"fresh"}, {"dead"}, set()),
        ("morgue", "revive", 1, {"fresh", "failed", "dead"}, set(), {"dead"}),
        ("morgue", "delete", 1, {"fresh", "failed"}, set(), set()),
    ],
)
def test_an_action_does_what_its_name_says(mixed, start, view, action, moved, queued, buried, due_now):
    progress = last(start(action, Match(view)))
    assert progress == Progress(moved, moved)
    assert ids_of(mixed, "queued") == queued
    assert ids_of(mixed, "morgue") == buried
    due = {id for shard in mixed for id, job in shard.queued().items() if job.perform_in <= shard.now()}
    assert due == due_now
    assert ids_of(mixed, "claimed") == {"busy"}


def test_these_are_all_the_actions_there_are():
    assert set(EVERY) == {
        *itertools.product(("due", "retries"), ("perform_now", "bury", "delete")),
        *itertools.product(("due", "waiting", "scheduled"), ("bury", "delete", "cancel")),
        ("scheduled", "perform_now"),
        *itertools.product(("due", "waiting", "scheduled"), ("hold",)),
        *itertools.product(("held",), ("release", "stop_waiting", "bury", "delete")),
        *itertools.product(("blocked",), ("retry", "skip", "bury", "delete", "hold")),
        *itertools.product(("morgue",), ("revive", "delete")),
    }
    assert set(get_args(View)) == set(ACTIONS) == set(INDEXED)
    assert set(get_args(ActionName)) == {action for _, action in EVERY}


@pytest.mark.parametrize(
    ("action", "view", "message"),
    [
        ("revive", "due", "can't do 'revive' in due: there are perform_now, bury, delete, cancel, hold"),
        ("revive", "retries", "can't do 'revive' in retries: there are perform_now, bury, delete"),
        ("bury", "morgue", "can't do 'bury' in morgue: there are revive, delete"),
        ("perform_now", "morgue", "can't do 'perform_now' in morgue: there are revive, delete"),
        ("", "due", "can't do '' in due: there are"),
        ("Delete", "due", "can't do 'Delete' in due: there are"),
        ("delete", "queue", "no view 'queue': there are due, waiting, scheduled, retries, blocked, held, morgue"),
        ("delete", "", "no view '': there are due, waiting, scheduled, retries, blocked, held, morgue"),
    ],
)
def test_what_a_view_cannot_do_is_refused_before_anything_is_written(mixed, start, action, view, message):
    before = everything(mixed)
    with pytest.raises(ValueError, match=message):
        check_action(action, view)
    with pytest.raises(ValueError, match=message):
        next(start(action, Match(view)))
    assert everything(mixed) == before


def test_jobs_that_are_due_keep_their_place_when_they_are_performed_now(work, shards, start):
    push(work, ["a"], perform_in=PAST)
    push(work, ["b"])
    assert last(start("perform_now", Match("due"))) == Progress(2, 1)
    assert shards[shard_of(b"a", SHARDS)].queued()["a"].perform_in == PAST


@pytest.mark.parametrize(
    ("match", "expected"),
    [
        (Match("due"), {"a-1", "a-2", "b-1", "c"}),
        (Match("due", "a-*"), {"a-1", "a-2"}),
        (Match("due", "a-1"), {"a-1"}),
        (Match("due", "x*"), set()),
        (Match("retries"), {"a-1", "b-1"}),
        (Match("retries", "a-*"), {"a-1"}),
        (Match("retries", error="boom #"), {"a-1", "b-1"}),
        (Match("retries", "b-*", "boom #"), {"b-1"}),
        (Match("retries", error="boom 1"), set()),
        (Match("due", error=""), {"a-2", "c"}),
    ],
)
def test_only_what_matches_is_touched(work, shards, start, match, expected):
    fail(shards, "a-1", error="boom 1")
    fail(shards, "b-1", error="boom 22")
    push(work, ["a-2", "c"])
    assert last(itertools.chain([Progress(0, 0)], start("delete", match))) == Progress(len(expected), len(expected))
    assert ids_of(shards, "queued") == {"a-1", "a-2", "b-1", "c"} - expected


@pytest.mark.parametrize(("view", "action"), EVERY)
def test_all_of_many_jobs_are_acted_on(work, shards, start, view, action):
    ids = [f"id-{n}" for n in range(MANY)]
    push(work, ids, perform_in=PAST if view in {"retries", "waiting", "blocked"} else FUTURE)
    if view == "morgue":
        work.actions.bury(ids)
    if action == "stop_waiting":
        work.perform_async([{"id": id, "after": [(work, "another")]} for id in ids])
    elif view == "held":
        work.actions.hold(ids)
    if view == "retries":
        for shard in shards:
            lease = shard.lease()
            lease.settle(failed=[Failure(job.id, 0, FUTURE, "boom") for job in lease.claim()])
            lease.release("lease")
    if view == "blocked":
        for shard in shards:
            lease = shard.lease()
            lease.settle(exhausted=[Exhausted(job.id, "boom", "block") for job in lease.claim()])
            lease.release("lease")
    assert last(start(action, Match(view))) == Progress(MANY, MANY)
    stays = dict.fromkeys(("perform_now", "revive", "retry", "hold", "release", "stop_waiting"), (MANY, 0))
    left = (stays | {"bury": (0, MANY)}).get(action, (0, 0))
    assert (len(ids_of(shards, "queued")), len(ids_of(shards, "morgue"))) == left


@pytest.mark.parametrize("most", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 777, MANY - 1, MANY, MANY + 1])
def test_no_more_jobs_are_acted_on_than_were_counted(work, shards, start, most):
    push(work, range(MANY))
    progress = [Progress(0, 0), *start("delete", Match("due"), most)]
    assert progress[-1] == Progress(min(most, MANY), min(most, MANY))
    assert len(ids_of(shards, "queued")) == max(MANY - most, 0)


def test_a_sweep_that_has_done_its_number_looks_no_further(work, start):
    push(work, range(20_000))
    assert list(start("delete", Match("due"), most=3)) == [Progress(3, 3)]


def test_jobs_that_came_after_the_count_are_not_acted_on(work, shards, start):
    push(work, range(500))
    steps = start("bury", Match("due"), most=500)
    next(steps)
    push(work, range(500, 1500))
    assert last(steps).seen == 500
    assert len(ids_of(shards, "queued")) == 1000


def test_jobs_that_got_into_the_morgue_since_are_not_acted_on(work, shards, start):
    """Nobody has looked at them."""
    push(work, range(300))
    work.actions.bury(range(300))
    steps = start("delete", Match("morgue"))
    next(steps)
    push(work, range(1000, 1100))
    work.actions.bury(range(1000, 1100))
    assert last(steps) == Progress(300, 300)
    assert ids_of(shards, "morgue") == {str(n) for n in range(1000, 1100)}


@pytest.mark.parametrize("action", ["bury", "delete"])
def test_a_job_that_was_renewed_meanwhile_is_left_alone(work, shards, start, meanwhile, action):
    """It had failed when it was found; now it is another job of that id, which nobody has judged."""
    fail(shards, "a", "b")

    def renew():
        work.actions.delete(["a"])
        push(work, ["a"])

    assert last(start(action, Match("retries"), actions=meanwhile(renew))) == Progress(2, 1)
    assert ids_of(shards, "queued") == {"a"}
    assert ids_of(shards, "morgue") == ({"b"} if action == "bury" else set())


@pytest.mark.parametrize(
    ("view", "action"), [row for row in EVERY if row[1] not in {"hold", "release", "stop_waiting"}]
)
def test_a_job_that_has_gone_meanwhile_is_seen_and_not_moved(work, shards, start, meanwhile, view, action):
    fail(shards, "a")
    if view == "waiting":
        work.actions.perform_now(["a"])
    if view == "morgue":
        work.actions.bury(["a"])
    if view == "held":
        work.actions.hold(["a"])
    if view == "blocked":
        work.actions.perform_now(["a"])
        lease = shards[shard_of(b"a", SHARDS)].lease("n")
        lease.claim()
        lease.settle(exhausted=[Exhausted("a", "boom", "block")])

    def vanish():
        work.actions.delete(["a"])
        work.actions.morgue_delete(["a"])

    assert last(start(action, Match(view), actions=meanwhile(vanish))) == Progress(1, 0)
    assert ids_of(shards, "queued") == ids_of(shards, "morgue") == set()


@pytest.mark.parametrize("action", ["bury", "delete", "perform_now"])
def test_a_job_that_a_node_takes_meanwhile_is_left_to_it(work, shards, start, meanwhile, action):
    fail(shards, "a")
    work.actions.perform_now(["a"])
    shard = shards[shard_of(b"a", SHARDS)]
    taken = meanwhile(lambda: shard.lease("n").claim())
    assert last(start(action, Match("due"), actions=taken)) == Progress(1, 0)
    assert list(shard.claimed()) == ["a"]
    assert shard.morgue() == {}


def test_a_sweep_stops_between_any_two_steps(work, shards, start):
    push(work, range(MANY))
    steps = start("delete", Match("due"))
    assert len(ids_of(shards, "queued")) == MANY, "nothing happens before the first step is taken"
    for _ in range(3):
        progress = next(steps)
    steps.close()
    assert progress.moved == MANY - len(ids_of(shards, "queued"))
    assert 0 < progress.moved <= 3 * CHUNK


def test_steps_are_small_and_tell_how_far_they_have_come(work, shards, start):
    push(work, range(MANY))
    before = Progress(0, 0)
    for progress in start("delete", Match("due")):
        assert 0 <= progress.seen - before.seen <= CHUNK
        assert progress.moved == progress.seen == MANY - len(ids_of(shards, "queued"))
        before = progress


def test_steps_that_find_nothing_are_told_too(work, start):
    """Else a search in a long queue could not be stopped."""
    push(work, range(20_000))
    progress = list(start("delete", Match("due", "none-*")))
    assert len(progress) >= 10
    assert set(progress) == {Progress(0, 0)}


def test_a_sweep_that_was_cut_short_can_be_started_again(work, shards, start):
    push(work, range(MANY))
    next(start("bury", Match("due", "*")))
    assert last(start("bury", Match("due", "*"))).moved < MANY
    assert (len(ids_of(shards, "queued")), len(ids_of(shards, "morgue"))) == (0, MANY)
    assert list(start("bury", Match("due", "*"))) == []
