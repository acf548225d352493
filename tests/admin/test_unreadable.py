"""Readers of what anybody may have written: nothing raises, sizes are bounded, and what is told is printable."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowkiq import ShardsCountMismatch, clock
from lowkiq.admin.beats import hands, health
from lowkiq.admin.jobs.undo import UndoableActions
from lowkiq.admin.metrics import MOST_QUEUES, MOST_SHARDS_IN_ALL
from lowkiq.admin.past import history
from lowkiq.admin.past.durations import Durations
from lowkiq.admin.past.statistics import Addition, Times, add, read_totals
from lowkiq.errors import OtherLayout
from lowkiq.node.counts.deploys import note_version
from lowkiq.queue import keys
from lowkiq.queue.layouts import opened
from lowkiq.queue.unreadable import KEPT_SECONDS, LONGEST, MOST, Met, Unreadable, quoted
from lowkiq.version import VERSION
from tests.junk import EVIL, GARBAGE, GOOD_BEAT, JUNK, PUT_AWAY, as_kind, put_away, set_up

KINDS = ("string", "list", "hash", "zset")
FUZZ = settings(max_examples=150)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def test_millions_of_shards_are_not_read_and_ours_are(app):
    queues = {f"theirs-{number}": keys.MOST_SHARDS for number in range(2 * MOST_QUEUES)}
    pipeline = app.redis().pipeline()
    pipeline.hset(keys.queues(app.settings.namespace), "ours", 5)
    pipeline.hset(keys.queues(app.settings.namespace), mapping=queues)
    pipeline.execute()
    started = clock.monotonic()
    known = app.queues()
    assert sum(known.values()) <= MOST_SHARDS_IN_ALL
    assert len(known) <= MOST_QUEUES
    assert "all queues together" in " ".join(one.why for one in app.caller.met.now())
    assert clock.monotonic() - started < 30


def test_the_smallest_queues_are_read_first(app):
    queues = {f"a-{number}": keys.MOST_SHARDS for number in range(3)} | {"z": 5}
    app.redis().hset(keys.queues(app.settings.namespace), mapping=queues)
    assert app.queues()["z"] == 5
    assert len(app.queues()) == 2


def test_a_thousand_beats_are_read_and_no_more(app):
    pipeline = app.redis().pipeline()
    for number in range(health.MOST_BEATS + 500):
        pipeline.zadd(keys.nodes(app.settings.namespace), {f"n{number}": clock.real()})
        pipeline.set(keys.node(app.settings.namespace, f"n{number}"), json.dumps(GOOD_BEAT))
    pipeline.execute()
    assert len(app.nodes().nodes) == health.MOST_BEATS


def test_hundreds_of_megabytes_of_beats_are_not_read(app):
    pad = b" " * health.MOST_BEAT_BYTES
    pipeline = app.redis().pipeline()
    for number in range(60):
        pipeline.zadd(keys.nodes(app.settings.namespace), {f"n{number:03}": clock.real()})
        pipeline.set(keys.node(app.settings.namespace, f"n{number:03}"), pad)
    pipeline.execute()
    found = app.nodes()
    app.redis().delete(*app.redis().keys(f"{app.settings.namespace}:node:*"))
    assert "more than 64 MiB" in " ".join(one.why for one in found.unreadable)


@pytest.mark.parametrize("text", ["<b>", "0", "99999999999", "", "-5"])
def test_a_push_to_a_queue_whose_shards_count_is_none_says_what_to_remove(app, text):
    worker = app.worker(queue_name="q", shards_count=1)(lambda _: None)
    key = keys.queues(app.settings.namespace)
    app.redis().hset(key, "q", text)
    with pytest.raises(ShardsCountMismatch, match=f"HDEL {key} q"):
        worker.perform_async([{"id": 1}])
    found = opened(app.caller, app.settings.namespace, {"q": 1, "other": 1})
    assert [queue for queue, one in found.items() if isinstance(one, OtherLayout)] == ["q"]


@FUZZ
@given(field=st.sampled_from(sorted(GOOD_BEAT)), value=VALUES)
def test_no_beat_breaks_its_reader(app, field, value):
    app.redis().zadd(keys.nodes(app.settings.namespace), {"n": clock.real()})
    app.redis().set(keys.node(app.settings.namespace, "n"), json.dumps(GOOD_BEAT | {field: value}))
    found = app.nodes()
    assert len(found.nodes) + len(found.unreadable) == 1


@FUZZ
@given(
    name=st.sampled_from(["meta", "owner", "payloads", "errors", "crashes"]),
    field=st.sampled_from(["1", "dead", "processed", "epoch", "node", "until", "seen", "last_score", "layout"]),
    value=st.binary(max_size=40),
)
def test_no_field_of_a_shard_breaks_its_readers(app, name, field, value):
    client, ns = set_up(app), app.settings.namespace
    client.hset(f"{ns}:{{q:0}}:{name}", field, value)
    app.metrics()
    app.queries("q", 2).fetch(["1", "2"])
    app.queries("q", 2).morgue_fetch(["dead"])
    client.delete(f"{ns}:{{q:0}}:{name}")


@FUZZ
@given(record=st.binary(max_size=60))
def test_no_point_breaks_a_history(app, record):
    key = f"{keys.history(app.settings.namespace, '')}5m"
    app.redis().delete(key)
    app.redis().rpush(key, record)
    history.read_history(app.caller, app.settings.namespace, "", "5m")


@given(st.binary(max_size=300))
def test_what_is_quoted_is_printable_and_short(data):
    text = quoted(data)
    assert all(" " <= char <= "~" for char in text)
    assert len(text) <= 4 * LONGEST + 40


def test_what_was_met_is_forgotten_when_it_was_mended_and_after_a_while(monkeypatch):
    now = 1_000.0
    monkeypatch.setattr(clock, "monotonic", lambda: now)
    met, one = Met(), Unreadable("k", "why", "UNLINK k")
    met.tell("place", [one])
    met.tell("another", [one])
    assert met.now() == [one]
    met.tell("place", [])
    met.tell("another", [])
    assert met.now() == []
    for number in range(2 * MOST):
        met.tell(f"{number}", [Unreadable(f"{number}", "why", "")])
    assert len(met.now()) == MOST
    now += KEPT_SECONDS
    assert met.now() == []


def test_what_is_kept_of_tags_and_transitions_breaks_no_query(app):
    client, ns, queries = set_up(app), app.settings.namespace, app.queries("q", 2)
    for name, (plant, named) in JUNK.items():
        if not re.search("tag|track|transition", name):
            continue
        client.delete(*client.keys(f"{ns}:*"))
        plant(set_up(app), ns)
        queries.top()
        [*queries.find(tag="eu"), *queries.morgue_find(tag="eu")]
        queries.tracked()
        queries.history("1")
        app.metrics()
        assert not named or named in " ".join(one.key for one in app.caller.met.now()), name


def test_a_deletion_that_was_kept_by_somebody_else_comes_back_whole_or_not_at_all(app):
    client, ns = set_up(app), app.settings.namespace
    actions = UndoableActions(app.caller, app.shards("q", 2), max_id_bytes=512)
    for record in PUT_AWAY:
        client.delete(*client.keys(f"{ns}:*"))
        set_up(app)
        before = {key: client.dump(key) for key in client.keys(f"{ns}:*")}
        put_away(record)(client, ns)
        assert actions.undo("0123456789abcdef") == 0, record
        client.delete(f"{ns}:{{q:0}}:undo:0123456789abcdef", f"{ns}:{{q:0}}:deeds", f"{ns}:{{q:1}}:deeds")
        assert {key: client.dump(key) for key in client.keys(f"{ns}:*")} == before, record
    as_kind(client, f"{ns}:{{q:0}}:undo:0123456789abcdef", "string")
    assert actions.undo("0123456789abcdef") == 0
    assert "undo:0123456789abcdef" in app.caller.met.now()[0].key


def test_what_nodes_write_makes_room_for_itself(app):
    """Whatever is there in its place: the version they run, what they are asked for, and what they have added."""
    client, ns = app.redis(), app.settings.namespace
    times = Times(Durations(), Durations())
    texts = (lambda key, text=text: client.set(key, text) for text in GARBAGE)
    kinds = (lambda key, kind=kind: as_kind(client, key, kind) for kind in KINDS)
    for number, plant in enumerate([*texts, *kinds]):
        for key in ("{hands}:to:h:1:n", "{history}::added:n", "{history}:q:times"):
            client.delete(f"{ns}:{key}")
            plant(f"{ns}:{key}")
        for key in client.keys(f"{ns}:version:*"):
            client.delete(key)
            plant(key)
        note_version(app.caller, ns, ["q"])
        assert client.get(client.keys(f"{ns}:version:*")[0]).split() == [VERSION.encode(), b"1"]
        assert hands.take(app.caller, ns, "h:1:n")[1] == []
        asked = hands.ask(app.caller, ns, "h:1:n", "quiet", "me")
        assert [request.id for request in hands.take(app.caller, ns, "h:1:n")[1]] == [asked.id]
        assert add(app.caller, ns, "n", 10 + number, [Addition("q", 1, times)])
        assert read_totals(app.caller, ns, ["q"])["q"].waits.count == 0
    client.rpush(f"{ns}:{{hands}}:to:h:1:n", *GARBAGE, b"[" * 100_000, EVIL)
    assert hands.take(app.caller, ns, "h:1:n")[1] == []
    assert "{hands}:to:h:1:n" in " ".join(one.key for one in app.caller.met.now())
