"""Watch: of many shards those that hold something are found, however few they are."""

from __future__ import annotations

import pytest

from lowkiq import Worker
from lowkiq.node.threads import make_threads
from lowkiq.queue.shard import Shard, shards_of
from lowkiq.queue.watch import TOGETHER, Watch
from tests.node.driven import acquire, runtime_of
from tests.queue.shard_driver import FUTURE, ShardDriver
from tests.support import wait_until

MANY = 3 * TOGETHER + 10


@pytest.fixture
def watch(app) -> Watch[Shard]:
    return Watch(app.caller, lambda shard: shard)


def driver(app, index, shards_count=MANY):
    return ShardDriver(app, index=index, shards_count=shards_count)


def shards(app, count=MANY):
    return shards_of(app.settings.namespace, {"q": count})


def test_idle_shards_hold_nothing(app, watch):
    for index in (0, TOGETHER, MANY - 1):
        lease = driver(app, index).lease()
        assert lease.claim() == []
    assert watch.holding(shards(app)) == []


@pytest.mark.parametrize("index", [0, TOGETHER - 1, TOGETHER, MANY - 1])
@pytest.mark.parametrize("state", ["due", "later", "claimed", "handed over"])
def test_a_shard_that_holds_something_is_found(app, watch, index, state):
    shard = driver(app, index)
    if state == "handed over":
        shard.redis.rpush(shard.key("claim"), "a", "1700000000.000000:-1:1700000000.000000:1")
    else:
        shard.push("a", **({"perform_in": FUTURE} if state == "later" else {}))
    if state == "claimed":
        assert shard.lease().claim()
    everything = shards(app)
    found = watch.holding(everything)
    assert index in [shard.index for shard in found]
    assert len(found) <= TOGETHER
    assert all(shard in everything for shard in found)


def test_it_follows_what_it_is_asked_about(app, watch):
    driver(app, 5).push("a")
    everything = shards(app)
    assert [shard.index for shard in watch.holding(everything)][:1] == [0]
    assert watch.holding(everything[TOGETHER:]) == []
    assert 5 in [shard.index for shard in watch.holding(everything[1:])]


def test_few_shards_are_not_asked_about(app, watch):
    few = shards(app, TOGETHER)
    assert watch.holding(few) == few


def test_on_a_cluster_all_are_looked_at(app, watch, monkeypatch):
    monkeypatch.setattr(app.caller, "connections", None)
    everything = shards(app)
    assert watch.holding(everything) == everything


def test_a_thread_of_many_shards_finds_jobs_of_which_it_never_heard(app, make_app):
    """A bell that is missed costs no more than poll_interval."""
    done: list[str] = []
    app = make_app(threads_per_node=1, poll_interval=0.05, namespace=app.settings.namespace)

    @app.worker
    class Jobs(Worker):
        shards_count = MANY

        def perform(self, payloads_by_id):
            done.extend(payloads_by_id)

    (thread,) = make_threads(runtime_of(app, "n"))
    for lease in thread.pool.leases:
        acquire(lease, until=1e9)
    thread.start()
    for lease in (thread.pool.leases[7], thread.pool.leases[-1]):
        id = f"of shard {lease.shard.index}"
        done.clear()
        app.redis().hset(lease.shard.prefix + "payloads", id, "1700000000.0:1")
        app.redis().zadd(lease.shard.prefix + "due", {id: 1_700_000_000.0})  # as if its ring were lost
        wait_until(lambda: done)
        assert done == [id]
    thread.stop()
    thread.join(20)
