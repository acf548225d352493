"""Pushes to many shards: one script is for several of them, where one server has them all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from lowkiq.errors import PushFailed, ShardsCountMismatch
from lowkiq.job import EncodedJob, Pushed, shard_of
from lowkiq.queue import push, push_calls
from lowkiq.queue.call import Call, Caller
from lowkiq.queue.push import Producer
from tests.queue.bells import bell_of
from tests.queue.shard_driver import FUTURE

SHARDS = 250


def fresh(*ids: str, payload: bytes = b"1") -> list[EncodedJob]:
    return [EncodedJob(id.encode(), payload, "", "") for id in ids]


@pytest.fixture
def sent(monkeypatch) -> list[Sequence[Call[object]]]:
    """Calls by round trip."""
    trips: list[Sequence[Call[object]]] = []
    run_all = Caller.run_all

    def spy(caller, calls, replicas=None):
        if calls and calls[0].script == "push":
            trips.append(calls)
        return run_all(caller, calls, replicas)

    monkeypatch.setattr(Caller, "run_all", spy)
    return trips


@pytest.fixture
def producer(app, sent) -> Producer:
    producer = Producer(app.caller, app.settings.namespace, "q", SHARDS)
    producer.register()
    return producer


def found(app, ids):
    return {job.id: job.payloads for job in app.queries("q", SHARDS).fetch(list(ids))}


def shards_of_calls(sent):
    return [len(call.keys) for calls in sent for call in calls]


def test_few_jobs_a_shard_share_scripts(app, producer, sent):
    ids = [f"id-{n}" for n in range(500)]
    assert producer.push(fresh(*ids)) == Pushed(500, 0)
    assert found(app, ids) == {id: [1] for id in ids}
    touched = len({shard_of(id.encode(), SHARDS) for id in ids})
    assert shards_of_calls(sent) == [100, 100, touched - 200]
    assert len(sent) == 1
    assert app.metrics()["q"].pushed == 500


def test_on_a_cluster_each_shard_has_a_script(app, producer, sent, monkeypatch):
    monkeypatch.setattr(app.caller, "is_spread", True)
    ids = [f"id-{n}" for n in range(100)]
    assert producer.push(fresh(*ids)) == Pushed(100, 0)
    assert set(shards_of_calls(sent)) == {1}
    assert max(map(len, sent)) <= push.PUSHES_AT_ONCE
    assert found(app, ids) == {id: [1] for id in ids}


def test_a_script_has_no_more_jobs_and_bytes_than_one_for_a_shard(app, producer, sent, monkeypatch):
    monkeypatch.setattr(push_calls, "MAX_PUSH", 7)
    ids = [f"id-{n}" for n in range(1_000)]
    assert producer.push(fresh(*ids)) == Pushed(1_000, 0)
    assert all(len(call.keys) == 1 or call_jobs(call) <= 7 for calls in sent for call in calls)
    sent.clear()
    monkeypatch.setattr(push_calls, "MAX_PUSH_BYTES", 100)
    producer.push(fresh(*ids, payload=b"2" * 60))
    assert set(shards_of_calls(sent)) == {1}
    assert {call_jobs(call) for calls in sent for call in calls} == {1}


def call_jobs(call):
    return (len(call.arguments) - 4 - (len(call.keys) if len(call.keys) > 1 else 0)) // 2


def test_what_exceeds_a_script_follows_in_a_later_one_in_its_order(app, producer, sent, monkeypatch):
    monkeypatch.setattr(push_calls, "MAX_PUSH", 3)
    jobs = [EncodedJob(b"a", b"%d" % n, "", "") for n in range(8)] + fresh("b", "c", "d")
    assert producer.push(jobs) == Pushed(4, 7)
    assert found(app, "abcd") == {"a": list(range(8)), "b": [1], "c": [1], "d": [1]}
    for calls in sent:
        assert max(Counter(key for call in calls for key in call.keys).values()) == 1


@pytest.mark.parametrize("given", [(5.0, ""), ("", "1790000000.123457"), (5.0, f"{FUTURE:.6f}")])
def test_one_score_or_time_leaves_the_others_their_own(app, producer, given):
    ids = [f"id-{n}" for n in range(20)]
    producer.push([*fresh(*ids[:10]), EncodedJob(b"other", b"1", *given), *fresh(*ids[10:])])
    jobs = {job.id: job for job in app.queries("q", SHARDS).fetch([*ids, "other"])}
    assert len(jobs) == 21
    if given[0] != "":
        assert jobs["other"].scores == (given[0],)
    if given[1] != "":
        assert jobs["other"].perform_in == float(given[1])
    assert all(jobs[id].scores == (jobs[id].perform_in,) for id in ids)


def test_ids_that_are_queued_merge_and_those_that_recur(app, producer):
    ids = [f"id-{n}" for n in range(300)]
    producer.push(fresh(*ids[::3]))
    assert producer.push(fresh(*ids, ids[7], payload=b"2")) == Pushed(200, 101)
    payloads = found(app, ids)
    assert all(payloads[id] == ([1, 2] if n % 3 == 0 else [2]) for n, id in enumerate(ids))
    assert (app.metrics()["q"].pushed, app.metrics()["q"].merged) == (401, 101)


def test_a_shard_of_another_layout_is_refused_and_keeps_no_other_from_its_jobs(app, producer, sent):
    ids = [f"id-{n}" for n in range(300)]
    order = list(dict.fromkeys(shard_of(id.encode(), SHARDS) for id in ids))
    refused = order[50]
    app.redis().hset(app.shards("q", SHARDS)[refused].prefix + "meta", "layout", 9)
    with pytest.raises(ShardsCountMismatch, match="the queue has shards_count 9, the caller says 250"):
        producer.push(fresh(*ids))
    taken = {shard_of(id.encode(), SHARDS) for id in found(app, ids)}
    assert taken == set(order) - {refused}


def test_a_full_memory_leaves_no_shard_changed(own_app):
    producer = Producer(own_app.caller, own_app.settings.namespace, "q", SHARDS)
    ids = [f"id-{n}" for n in range(100)]
    producer.push(fresh(*ids[::2]))
    before = {key: own_app.redis().dump(key) for key in own_app.redis().keys("*")}
    own_app.redis().config_set("maxmemory", 1)
    with pytest.raises(PushFailed, match="took 0 of 100 payloads for sure"):
        producer.push(fresh(*ids, payload=b"2"))
    assert {key: own_app.redis().dump(key) for key in own_app.redis().keys("*")} == before


def test_the_owner_of_each_shard_is_rung(app, producer):
    bells = []
    ids = [f"id-{n}" for n in range(12)]
    for number, shard in enumerate(app.shards("q", SHARDS)):
        if number in {shard_of(id.encode(), SHARDS) for id in ids}:
            bells.append(bell_of(app, f"{app.settings.namespace}:bell:n:{number}"))
            app.caller.run(shard.acquire("n", 60, 3, bell=bells[-1].key))
    producer.push(fresh(*ids))
    for bell in bells:
        heard = bell.wait(30, is_idle=False)
        assert heard.ring and heard.ring.shard.decode().endswith(f":{bell.key.rpartition(':')[2]}}}:")
        bell.close()


def test_when_redis_has_lost_the_script_all_are_pushed_once(app, producer):
    ids = [f"id-{n}" for n in range(300)]
    app.redis().script_flush()
    assert producer.push(fresh(*ids)) == Pushed(300, 0)
    assert app.metrics()["q"].pushed == 300
