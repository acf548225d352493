"""Bulks: what everybody can see of an action on all that match."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from lowkiq.admin.jobs import bulks
from lowkiq.admin.jobs.bulks import (
    INTERRUPTED_AFTER,
    KEPT_SECONDS,
    LISTED,
    Bulk,
    ask_to_stop,
    is_to_stop,
    new_bulk,
    read_bulk,
    read_bulks,
    save,
)
from lowkiq.admin.jobs.search import Match
from lowkiq.queue import keys


@pytest.fixture
def store(app):
    return app.caller, app.settings.namespace


@pytest.fixture
def redis(app):
    return app.redis()


def start(store, **fields):
    values = {"queue": "q", "action": "delete", "match": Match("due"), "total": 10} | fields
    return new_bulk(*store, **values)


def write(store, bulk, **changes):
    """As another process did some time ago: nothing of it is of now."""
    caller, namespace = store
    bulk = msgspec.structs.replace(bulk, **changes)
    caller.command("SET", keys.bulk(namespace, bulk.id), msgspec.json.encode(bulk))
    return bulk


def test_a_new_bulk_runs_and_has_done_nothing(store, redis):
    match = Match("retries", "a-*", "boom #")
    bulk = start(store, queue="orders", action="bury", match=match, total=17)
    assert (bulk.queue, bulk.action, bulk.match, bulk.total) == ("orders", "bury", match, 17)
    assert (bulk.seen, bulk.moved, bulk.state, bulk.error, bulk.is_over) == (0, 0, "running", None, False)
    assert bulk.started_at == pytest.approx(redis.time()[0], abs=60)
    found = read_bulk(*store, bulk.id)
    assert found == msgspec.structs.replace(bulk, updated_at=found.updated_at)
    assert read_bulks(*store) == [found]


def test_bulks_have_names_that_cannot_be_guessed_and_fit_a_url(store):
    ids = {start(store).id for _ in range(50)}
    assert len(ids) == 50
    assert all(len(id) == 16 and id.isalnum() for id in ids)


def test_progress_is_told_as_of_now(store, redis):
    bulk = start(store)
    told = save(*store, msgspec.structs.replace(bulk, seen=5, moved=4, updated_at=0.0))
    assert told.updated_at == pytest.approx(redis.time()[0], abs=60)
    assert read_bulk(*store, bulk.id) == told
    assert (told.seen, told.moved, told.started_at) == (5, 4, bulk.started_at)


@pytest.mark.parametrize("state", ["done", "stopped", "failed"])
def test_an_end_is_told_and_stays(store, state):
    bulk = start(store)
    save(*store, msgspec.structs.replace(bulk, state=state, seen=9, error="why"))
    assert not ask_to_stop(*store, bulk.id)
    assert not is_to_stop(*store, bulk.id)
    found = read_bulk(*store, bulk.id)
    assert (found.state, found.seen, found.error, found.is_over) == (state, 9, "why", True)
    write(store, found, updated_at=1.0)
    assert read_bulk(*store, bulk.id).state == state


def test_a_bulk_that_was_asked_to_stop_is_stopping_until_it_has(store):
    bulk = start(store)
    assert not is_to_stop(*store, bulk.id)
    assert ask_to_stop(*store, bulk.id)
    assert is_to_stop(*store, bulk.id)
    found = read_bulk(*store, bulk.id)
    assert (found.state, found.is_over) == ("stopping", False)
    assert [bulk.state for bulk in read_bulks(*store)] == ["stopping"]
    save(*store, msgspec.structs.replace(bulk, seen=3))  # its process has not looked yet
    assert read_bulk(*store, bulk.id).state == "stopping"
    save(*store, msgspec.structs.replace(bulk, state="stopped"))
    assert read_bulk(*store, bulk.id).state == "stopped"


def test_a_bulk_that_ended_before_it_could_stop_is_done(store):
    bulk = start(store)
    ask_to_stop(*store, bulk.id)
    save(*store, msgspec.structs.replace(bulk, state="done"))
    assert read_bulk(*store, bulk.id).state == "done"


def test_another_bulk_is_not_stopped(store):
    bulk, other = start(store), start(store)
    assert ask_to_stop(*store, bulk.id) and ask_to_stop(*store, bulk.id), "who asks twice is told the same"
    assert not is_to_stop(*store, other.id)
    assert {bulk.state for bulk in read_bulks(*store)} == {"running", "stopping"}


@pytest.mark.parametrize("is_asked_to_stop", [False, True])
def test_a_bulk_whose_process_is_gone_is_interrupted(store, redis, is_asked_to_stop):
    bulk = start(store)
    if is_asked_to_stop:
        ask_to_stop(*store, bulk.id)
    write(store, bulk, updated_at=redis.time()[0] - INTERRUPTED_AFTER - 60, seen=4)
    found = read_bulk(*store, bulk.id)
    assert (found.state, found.seen, found.is_over) == ("interrupted", 4, True)
    assert [bulk.state for bulk in read_bulks(*store)] == ["interrupted"]
    assert not ask_to_stop(*store, bulk.id)


def test_a_bulk_that_was_only_slow_runs_again_when_it_tells(store, redis):
    bulk = write(store, start(store), updated_at=redis.time()[0] - 1_000)
    assert read_bulk(*store, bulk.id).state == "interrupted"
    save(*store, bulk)
    assert read_bulk(*store, bulk.id).state == "running"


def test_what_is_not_there_is_none(store, redis):
    assert read_bulk(*store, "ghost") is None
    assert not ask_to_stop(*store, "ghost")
    assert not is_to_stop(*store, "ghost")
    assert read_bulks(*store) == []
    assert redis.keys(f"{store[1]}:*") == []


@pytest.mark.parametrize("id", ["", "*", "a:stop", "\x00", "x" * 10_000, "../.."])
def test_any_text_can_be_asked_for(store, id):
    start(store)
    assert read_bulk(*store, id) is None
    assert not ask_to_stop(*store, id)


def test_bulks_are_listed_the_newest_first(store, redis):
    ids = [start(store).id for _ in range(5)]
    for number, id in enumerate(ids):
        redis.zadd(keys.bulks(store[1]), {id: number})
    assert [bulk.id for bulk in read_bulks(*store)] == ids[::-1]


def test_only_the_last_ones_are_listed(store, redis, monkeypatch):
    ticks = itertools.count(1)
    monkeypatch.setattr(bulks, "redis_time", lambda caller: float(next(ticks)))
    ids = [start(store).id for _ in range(LISTED + 7)]
    assert LISTED == 50
    assert redis.zcard(keys.bulks(store[1])) == 50
    assert [bulk.id for bulk in read_bulks(*store)] == ids[: -LISTED - 1 : -1]


def test_what_is_told_of_an_ended_bulk_goes_after_a_day(store, redis):
    bulk = start(store)
    ask_to_stop(*store, bulk.id)
    for key in (keys.bulk(store[1], bulk.id), keys.bulk_stop(store[1], bulk.id)):
        assert KEPT_SECONDS - 60 <= redis.ttl(key) <= KEPT_SECONDS
    redis.persist(keys.bulk(store[1], bulk.id))
    save(*store, bulk)
    assert redis.ttl(keys.bulk(store[1], bulk.id)) > 0


def test_a_bulk_that_has_gone_is_no_longer_listed(store, redis):
    gone, left = start(store), start(store)
    redis.delete(keys.bulk(store[1], gone.id))
    assert [bulk.id for bulk in read_bulks(*store)] == [left.id]


def test_bulks_are_of_one_namespace(store):
    bulk = start(store)
    assert read_bulk(store[0], f"{store[1]}x", bulk.id) is None
    assert read_bulks(store[0], f"{store[1]}x") == []


@pytest.mark.parametrize("state", ["running", "stopping", "done", "stopped", "failed", "interrupted"])
def test_a_bulk_is_over_or_not(state):
    bulk = Bulk("id", "q", "delete", Match("due"), 1, 0, 0, state, 0.0, 0.0)
    assert bulk.is_over == (state not in {"running", "stopping"})
