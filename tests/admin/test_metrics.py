"""stats, peek, register and beat: what is told of shards, queues and nodes."""

from __future__ import annotations

import pytest

from lowkiq.admin.beats.health import MOST_GONE
from lowkiq.admin.metrics import read_counters, read_shards, total
from lowkiq.codec import join_words
from lowkiq.queue.call import Call
from lowkiq.queue.shard import peek
from tests.queue.shard_driver import FUTURE, PAST, ShardDriver
from tests.web.node_health import tell_health


def stats(shard):
    (row,) = read_shards(shard.caller, [shard.shard])
    return row


def test_an_unknown_shard_is_empty(shard):
    row = stats(shard)
    assert (row.queue, row.shard) == ("q", 0)
    assert (row.length, row.retries, row.busy, row.morgue_length, row.due_in) == (0, 0, 0, 0, None)
    assert (row.processed, row.failed, row.pushed, row.merged) == (0, 0, 0, 0)
    assert (row.owner, row.lease_rest, row.epoch) == (None, 0.0, 0)
    assert shard.dump() == {}
    shard.lease(ttl=-1)
    row = stats(shard)
    assert (row.owner, row.lease_rest) == ("a", 0.0), "a lease that ran out has no rest"


def test_a_shard_tells_what_it_holds_and_has_done(shard):
    shard.push_all(*((id, b"x", 1.0, PAST) for id in ("acked", "failed", "dead", "busy")))
    shard.push("busy", b"y", 2.0)
    shard.push("later", perform_in=FUTURE)
    lease = shard.lease(ttl=60)
    lease.claim()
    lease.ack("acked")
    lease.fail("failed", delay=100)
    lease.exhaust("dead")
    row = stats(shard)
    assert (row.length, row.retries, row.busy, row.morgue_length) == (2, 1, 1, 1)
    assert (row.processed, row.failed, row.pushed, row.merged) == (1, 2, 6, 1)
    assert row.due_in == pytest.approx(100, abs=30)
    assert (row.owner, row.epoch) == ("a", int(lease.epoch))
    assert 0 < row.lease_rest <= 60


def test_a_burial_that_the_application_hears_of_is_nothing_unsent(shard):
    """`retries_exhausted` may take as long as it likes; what is to be sent is told from behind it."""
    for number, (name, words) in enumerate({"tells": [b"buried", b"q", b"1"], "told": [b"begun", b"q", b"1"]}.items()):
        shard.redis.hset(shard.key("letters"), name, join_words([b"6:buried", *words, b"6:buried"]))
        shard.redis.zadd(shard.key("outbox"), {name: number + 1})
    assert stats(shard).unsent_since is None
    shard.redis.hset(shard.key("letters"), "sent", join_words([b"of", b"forget", b"buried", b"1", b"6:buried"]))
    shard.redis.zadd(shard.key("outbox"), {"sent": 7e6})
    assert stats(shard).unsent_since == 7.0
    shard.redis.zadd(shard.key("outbox"), {"lost": 5e6})
    assert stats(shard).unsent_since == 5.0, "one whose words are lost goes nowhere either"


def test_a_queue_is_the_sum_of_its_shards(app):
    work = app.worker(queue_name="q", shards_count=3)(lambda _: None)
    work.perform_async([{"id": n, "perform_in": PAST} for n in range(30)])
    work.perform_async([{"id": 1, "payload": "another"}])
    work.actions.bury([5])
    shards = [ShardDriver(app, index=index, shards_count=3) for index in range(3)]
    lease = shards[0].lease()
    busy = len(lease.claim())
    queue = app.metrics()["q"]
    assert (queue.length, queue.fresh, queue.retries, queue.busy) == (29 - busy, 29 - busy, 0, busy)
    assert (queue.morgue_length, queue.pushed, queue.merged) == (1, 31, 1)
    assert queue.lag == pytest.approx(shards[0].now() - PAST, abs=30)


def test_nothing_due_is_no_lag(app):
    work = app.worker(queue_name="q")(lambda _: None)
    assert app.metrics()["q"].lag == 0.0
    work.perform_async([{"id": 1, "perform_in": FUTURE}])
    assert app.metrics()["q"].lag == 0.0


def test_queues_of_other_applications_are_told_too(make_app):
    work = make_app().worker(queue_name="theirs", shards_count=2)(lambda _: None)
    work.perform_async([{"id": 1}])
    other = make_app()
    assert other.queues() == {"theirs": 2}
    assert other.metrics()["theirs"].length == 1


def test_many_shards_are_told_of_in_order(app):
    shards = [ShardDriver(app, index=index, shards_count=250) for index in range(250)]
    for index in (0, 99, 100, 249):
        shards[index].push("a")
    rows = read_shards(app.caller, [shard.shard for shard in shards])
    assert [row.shard for row in rows] == list(range(250))
    assert [row.shard for row in rows if row.length] == [0, 99, 100, 249]


def test_a_peek_tells_when_the_oldest_job_of_each_shard_is_due(app):
    shards = [ShardDriver(app, index=index, shards_count=3) for index in range(3)]
    shards[0].push_all(("a", b"x", 1.0, FUTURE), ("b", b"x", 1.0, PAST))
    shards[2].push("a", perform_in=FUTURE)
    now = shards[0].now()
    due = app.caller.run(peek([shard.shard for shard in shards]))
    assert due == [pytest.approx(PAST - now, abs=5), None, pytest.approx(FUTURE - now, abs=5)]


def test_a_queue_keeps_the_shards_count_of_who_came_first(make_app):
    def work_of(count):
        return make_app().worker(queue_name="q", shards_count=count)(lambda _: None)

    work_of(3).perform_async([{"id": 1}])
    assert work_of(4).perform_async([{"id": 1}]) == (0, 1)
    assert make_app().queues() == {"q": 3}


def test_nodes_that_have_not_beaten_for_a_day_are_forgotten(app):
    key = f"{app.settings.namespace}:nodes"
    redis = app.redis()
    redis.zadd(key, {"old": redis.time()[0] - 86_500, "late": redis.time()[0] - 86_000})

    def beat(node, is_gone):
        return app.caller.run(Call("beat", [key], [node, is_gone, 30, 200], lambda reply: float(reply[0])))

    assert beat("new", 0) == pytest.approx(redis.time()[0], abs=5)
    assert redis.zrange(key, 0, -1) == [b"late", b"new"]
    beat("new", 1)
    assert redis.zrange(key, 0, -1) == [b"late"]


def test_of_nodes_that_are_gone_so_many_are_kept(app):
    namespace, redis = app.settings.namespace, app.redis()
    now = redis.time()[0]
    redis.zadd(f"{namespace}:nodes", {f"gone-{number:03}": now - 1_000 + number for number in range(MOST_GONE + 5)})
    redis.set(f"{namespace}:node:gone-004", "x")
    redis.set(f"{namespace}:node:gone-005", "x")
    tell_health(app, node="lives")
    names = redis.zrange(f"{namespace}:nodes", 0, -1)
    assert (len(names), names[0], names[-1]) == (MOST_GONE + 1, b"gone-005", b"lives")
    assert not redis.exists(f"{namespace}:node:gone-004")
    assert redis.exists(f"{namespace}:node:gone-005")


def test_the_counters_of_shards_that_hold_nothing_are_theirs(app):
    shards = [ShardDriver(app, index=index, shards_count=2) for index in range(2)]
    lease = shards[0].lease()
    shards[0].push_all(("a", b"x"), ("a", b"y"))
    lease.claim()
    lease.ack("a")
    done = total(read_counters(app.caller, [shard.shard for shard in shards]))
    assert (done.processed, done.failed, done.pushed, done.merged) == (1, 0, 2, 1)
    assert (done.length, done.busy, done.claims, done.morgue_length, done.lag, done.blocked, done.held) == (0,) * 7
