"""Incidents: noted once each, bounded, by Redis's clock, and read whatever else is there."""

from __future__ import annotations

import pytest

from lowkiq.admin.past.incidents import AT_ONCE, KEPT_SECONDS, MOST, NewIncident, end, note, read_incidents
from lowkiq.queue import keys
from lowkiq.queue.call import redis_time
from tests import junk


def new(key="k", says="it happened", **fields):
    return NewIncident(**{"key": key, "kind": "death", "severity": "bad", "says": says} | fields)


@pytest.fixture
def ask(app):
    """Calls of this test's namespace."""

    class Ask:
        caller, namespace = app.caller, app.settings.namespace
        redis = app.redis()

        def note(self, *news):
            return note(self.caller, self.namespace, news)

        def end(self, *names, at=None):
            return end(self.caller, self.namespace, dict.fromkeys(names, at))

        def read(self, **options):
            return read_incidents(self.caller, self.namespace, **options)

    return Ask()


def test_an_incident_is_noted_once_with_all_that_is_said_of_it(ask):
    before = redis_time(ask.caller)
    whole = new(says="it is <b>", node="n", host="h", queue="q", who="me")
    assert [ask.note(whole, whole), ask.note(whole), ask.note(new("k", "another text"))] == [1, 0, 0]
    (found,) = ask.read()
    assert (found.kind, found.severity, found.says, found.until) == ("death", "bad", "it is <b>", None)
    assert (found.node, found.host, found.queue, found.who, found.key) == ("n", "h", "q", "me", "k")
    assert before <= found.at <= redis_time(ask.caller)
    assert not found.goes_on


def test_what_lasts_goes_on_until_it_is_ended_once(ask):
    ask.note(new("a", lasts=True), new("b", lasts=True))
    assert [found.goes_on for found in ask.read()] == [True, True]
    assert [ask.end("a", "nobody noted this"), ask.end("a")] == [1, 0]
    ends = {found.key: found.until for found in ask.read()}
    assert ends["a"] and ends["b"] is None
    ask.note(new("a", lasts=True))
    assert {found.key: found.until for found in ask.read()} == ends


def test_the_first_end_lasts_no_longer_than_the_incidents(ask):
    ask.note(new(lasts=True))
    ask.end("k")
    assert 0 < ask.redis.ttl(keys.incidents_ends(ask.namespace)) <= KEPT_SECONDS


def test_an_end_is_when_it_was_seen_last_once_and_neither_before_its_beginning_nor_to_come(ask):
    now = redis_time(ask.caller)
    ask.note(*(new(key, lasts=True, at=now - 10) for key in ("a", "early", "ahead")))
    assert [ask.end("a", at=now - 3.5), ask.end("a", at=now - 1)] == [1, 0]
    ask.end("early", at=now - 900)
    ask.end("ahead", at=now + 900)
    ends = {found.key: found.until for found in ask.read()}
    assert (ends["a"], ends["early"]) == (pytest.approx(now - 3.5, abs=1e-3), pytest.approx(now - 10, abs=1e-3))
    assert now <= ends["ahead"] <= redis_time(ask.caller)


def test_the_newest_come_first_in_pages_by_queue_node_kind_and_time(ask):
    now = redis_time(ask.caller)
    ask.note(*(new(str(n), queue=f"q{n % 2}", node=f"n{n % 3}", kind=f"k{n % 2}", at=now - n) for n in range(12)))

    def names(**options):
        return [int(found.key) for found in ask.read(**options)]

    assert names() == list(range(12))
    assert names(limit=3) == [0, 1, 2]
    assert names(limit=3, cursor="2") == [3, 4, 5]
    assert names(cursor="11") == names(cursor="gone") == []
    assert names(queue="q1", node="n0", kind="k1") == [3, 9]
    assert names(since=now - 4.5, until=now - 1.5) == [2, 3, 4]
    assert names(until=now - 1.5, cursor="8", limit=2) == [9, 10]


def test_those_of_a_time_to_come_are_of_now_and_old_ones_are_dropped(ask):
    now = redis_time(ask.caller)
    assert ask.note(new("ahead", at=now + 9e9), new("old", at=now - KEPT_SECONDS - 1), new("ancient", at=-1e300)) == 1
    (found,) = ask.read()
    assert now <= found.at <= redis_time(ask.caller)
    ask.redis.zadd(keys.incidents(ask.namespace), {"ahead": now - KEPT_SECONDS - 1})
    ask.note(new("next"))
    assert [found.key for found in ask.read()] == ["next"]
    assert ask.redis.hkeys(keys.incidents_said(ask.namespace)) == [b"next"]
    assert 0 < ask.redis.ttl(keys.incidents(ask.namespace)) <= KEPT_SECONDS


def test_of_too_many_the_oldest_are_dropped(ask):
    now = redis_time(ask.caller)
    ask.note(*(new(f"{n}", at=now - 1 - n, lasts=True) for n in range(MOST)))
    ask.end(f"{MOST - 1}")
    ask.note(*(new(f"new {n}") for n in range(AT_ONCE)))
    found = ask.read(limit=2 * MOST)
    assert len(found) == MOST
    assert found[-1].key == f"{MOST - AT_ONCE - 1}"
    assert ask.redis.hlen(keys.incidents_said(ask.namespace)) == MOST
    assert ask.redis.hlen(keys.incidents_ends(ask.namespace)) == 0
    assert ask.redis.memory_usage(keys.incidents_said(ask.namespace), samples=0) < 5 << 20


def test_texts_are_cut_and_any_name_will_do(ask):
    long = "\ud800é" * 9_000
    assert ask.note(new(long, long, node=long, host=long, queue=long, who=long, lasts=True)) == 1
    assert ask.note(new(long, long)) == 0
    (found,) = ask.read()
    assert found.says.startswith("\\ud800é") and len(found.says) == 500
    assert ask.end(long) == 1


def test_junk_is_told_of_hides_no_other_and_keeps_none_from_being_noted(ask):
    for plant, named in junk.OF_INCIDENTS.values():
        ask.redis.delete(*ask.redis.keys(f"{ask.namespace}:*") or [""])
        ask.note(new("good"))
        plant(ask.redis, ask.namespace)
        ask.read()
        assert [one for one in ask.caller.met.now() if named in one.key], named
        ask.end("good")
        ask.note(new("next"))
        assert "next" in [found.key for found in ask.read()]
