"""Tracked ids and events: what happens is noted for those who ask, and costs nobody else anything."""

from __future__ import annotations

import asyncio

import pytest

from lowkiq import SettingsError
from lowkiq.admin.jobs import tracking
from lowkiq.admin.jobs.queries import Queries
from lowkiq.errors import Refused
from lowkiq.queue.shard import Owned
from tests.queue.shard_driver import PAST
from tests.support import wait_until


@pytest.fixture
def queries(shard):
    settings = shard.app.settings
    return Queries(
        shard.caller, [shard.shard], load_payload=bytes, load_error=str, max_id_bytes=512,
        max_payloads=settings.max_payloads,
    )  # fmt: skip


def kinds(queries, id):
    return [one.kind for one in queries.history(id)]


def test_every_transition_of_a_tracked_id_is_kept(shard, queries):
    assert shard.actions.track(["a"]) == 1
    assert shard.actions.track(["a"]) == 0
    shard.push("a", b"1", 1.0, PAST)
    shard.push("b", b"1", 1.0, PAST)
    lease = shard.lease("n1")
    lease.claim()
    lease.settle(failed=[("a", 0, 0.0, "boom")], acked=["b"])
    lease.claim()
    lease.release("claim")
    lease.claim()
    lease = shard.lease("n2", dead=["n1"])
    lease.claim()
    lease.exhaust("a")
    shard.actions.morgue_queue_up(["a"])
    shard.actions.bury(["a"])
    shard.actions.morgue_queue_up(["a"])
    shard.actions.cancel(["a"])
    shard.push("a")
    shard.actions.delete(["a"])
    shard.push("a")
    lease.claim()
    lease.settle(rest="ack", has_several=False)
    (tracked,) = queries.tracked()
    expected = (
        "pushed started failed started released started restored started buried revived buried revived cancelled "
        "pushed deleted pushed started done"
    )
    assert [one.kind for one in tracked.transitions] == expected.split()
    assert tracked.count == len(expected.split())
    assert [one.node for one in tracked.transitions[:3]] == ["", "n1", "n1"]
    assert tracked.transitions[2].detail == "boom"
    assert kinds(queries, "b") == []
    assert shard.actions.untrack(["a"]) == 1
    assert queries.tracked() == [] and kinds(queries, "a") == []
    shard.push("x")  # and then the shard is as it was
    assert shard.redis.hget(shard.key("meta"), "watched") is None


def test_of_very_many_transitions_the_first_and_the_last_are_kept(shard, queries):
    shard.actions.track(["a"])
    for number in range(120):
        shard.push("a", b"%d" % number)
    shard.actions.delete(["a"])
    for number in range(100):
        shard.push("a", b"%d" % number)
    found = queries.history("a")
    assert len(found) == 198 and found[99].kind == "pushed"
    assert queries.tracked()[0].count == 221


def test_too_many_tracked_ids_are_refused(shard, monkeypatch):
    monkeypatch.setattr(tracking, "MOST_TRACKED", 2)
    shard.actions.track(["a", "b"])
    with pytest.raises(Refused, match="2 ids of queue q are tracked, 2 can be: untrack some first"):
        shard.actions.track(["c"])


def test_a_listener_hears_what_happens_and_others_pay_nothing(shard):
    shard.app.queues()
    shard.redis.hset(f"{shard.app.settings.namespace}:queues", "q", "2:1")
    lease = shard.lease("n1")
    with shard.app.events("q", kinds=["pushed", "started", "failed", "done"], ids=["a"]) as events:
        events.next(0.2)
        for id in ("a", "b"):
            shard.push(id, b"p", 1.0, PAST)
        lease.claim()
        lease.settle(failed=[("a", 0, 0.0, "boom")], acked=["b"])
        lease.claim()
        lease.settle(rest="ack", has_several=False)
        found = [next(events) for _ in range(5)]
        assert [(one.kind, one.node, one.detail) for one in found] == [
            ("pushed", "", ""), ("started", "n1", ""), ("failed", "n1", "boom"), ("started", "n1", ""),
            ("done", "n1", ""),
        ]  # fmt: skip
        assert {one.id for one in found} == {"a"}
        assert 0 < shard.redis.ttl(shard.key("watch")) <= 30
    assert list(events) == []
    with pytest.raises(SettingsError, match="no queue 'ghost'"):
        shard.app.events("ghost")
    with pytest.raises(SettingsError, match="did you mean"):
        shard.app.events("q", kinds=["failled"])


def test_a_broken_connection_is_a_gap_and_an_async_listener_hears_it(shard):
    shard.redis.hset(f"{shard.app.settings.namespace}:queues", "q", "2:1")

    async def listen():
        with shard.app.events("q") as events:
            await asyncio.to_thread(events.next, 0.2)
            assert await asyncio.to_thread(shard.redis.execute_command, "CLIENT", "KILL", "TYPE", "pubsub")
            first = await anext(events)
            shard.push("a")
            return first, await anext(events)

    gap, pushed = asyncio.run(listen())
    assert (gap.kind, gap.queue) == ("gap", "q")
    assert (pushed.kind, pushed.id) == ("pushed", "a")
    wait_until(lambda: shard.redis.ttl(shard.key("watch")) > 0, 5)


def test_a_shard_whose_node_is_lost_is_told_of_whatever_ids_are_asked_for(shard):
    shard.redis.hset(f"{shard.app.settings.namespace}:queues", "q", "2:1")
    with shard.app.events("q", kinds=["death", "lease_lost", "restored"], ids=["other"]) as events:
        events.next(0.2)
        shard.push("a", b"p", 1.0, PAST)
        shard.lease("n1").claim()
        shard.lease("n2", dead=["n1"], ttl=0.05).claim()
        wait_until(lambda: isinstance(shard.try_acquire("n3"), Owned))
        found = [next(events) for _ in range(2)]
    assert [(one.kind, one.queue, one.id, one.node) for one in found] == [
        ("death", "q", "", "n1"), ("lease_lost", "q", "", "n2"),
    ]  # fmt: skip
