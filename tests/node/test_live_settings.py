"""A node follows live settings while it runs."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from lowkiq import Lowkiq, Worker
from lowkiq.node.leases.lease import Lease
from lowkiq.node.live_settings import LiveSettings
from lowkiq.node.schedulers import Seq
from lowkiq.node.threads import leases_of, make_threads
from tests.node.driven import runtime_of
from tests.node.nodes import Nodes
from tests.support import wait_until


def make(app: Lowkiq, worker: type[Worker]) -> tuple[list[Lease], LiveSettings]:
    runtime = runtime_of(app)
    leases = leases_of(runtime, worker)
    return leases, LiveSettings(runtime, leases)


def test_options_are_followed_and_go_back_to_those_of_the_code(app: Lowkiq) -> None:
    worker = app.worker(queue_name="q", shards_count=2, batch_size=3, max_retry_count=4)(lambda _: None)
    (lease, other), follow = make(app, worker)
    follow()
    assert (lease.concurrency, lease.claim_size.share(1)) == (math.inf, 3)
    worker.actions.set(concurrency=2, batch_size=10, max_retry_count=1, perform_timeout=5.0)
    follow()
    made = lease.performer.worker
    assert (made.batch_size, made.max_retry_count, made.perform_timeout) == (10, 1, 5.0)
    assert (lease.concurrency, other.concurrency, lease.claim_size.share(1)) == (2, 2, 10)
    assert (worker.batch_size, worker.max_retry_count) == (3, 4), "the code is as it was"
    worker.actions.unset("concurrency", "batch_size", "max_retry_count", "perform_timeout")
    follow()
    assert (made.batch_size, made.max_retry_count, made.perform_timeout) == (3, 4, None)
    assert (lease.concurrency, lease.claim_size.share(1)) == (math.inf, 3)


def test_another_queue_is_left_alone(app: Lowkiq) -> None:
    worker = app.worker(queue_name="q", shards_count=1)(lambda _: None)
    other = app.worker(queue_name="other", shards_count=1)(lambda _: None)
    (lease,), follow = make(app, worker)
    other.actions.set(concurrency=2)
    follow()
    assert lease.concurrency == math.inf


def test_a_batch_size_of_a_worker_of_one_id_is_ignored(app: Lowkiq) -> None:
    def one(id: str, payloads: list[object]) -> None: ...

    worker = app.worker(queue_name="q", shards_count=1)(one)
    (lease,), follow = make(app, worker)
    worker.actions.set(batch_size=10, concurrency=2)
    follow()
    assert (lease.performer.worker.batch_size, lease.concurrency) == (1, 2)


def test_what_somebody_else_has_written_is_not_followed(app: Lowkiq) -> None:
    worker = app.worker(queue_name="q", shards_count=1)(lambda _: None)
    (lease,), follow = make(app, worker)
    app.redis().hset(f"{app.settings.namespace}:settings", "q concurrency", '{"value": -1}')
    follow()
    assert lease.concurrency == math.inf


def test_weights_are_followed_and_go_back_to_those_of_the_node(app: Lowkiq) -> None:
    workers = {queue: app.worker(queue_name=queue, shards_count=2)(lambda _: None) for queue in ("a", "b")}
    runtime = runtime_of(app, weights={"a": 8})
    (pool,) = {thread.pool for thread in make_threads(runtime)}
    beats: list[None] = []
    follow = LiveSettings(runtime, pool.leases, [pool], lambda: beats.append(None))
    follow()
    assert (runtime.weights, len(beats)) == ({"a": 8}, 0)
    workers["a"].actions.set(weight=None)
    workers["b"].actions.set(weight=3)
    follow()
    assert (runtime.weights, len(beats)) == ({"b": 3}, 1)
    assert pool.shares and pool.shares._weights == {"b": 3}
    for worker in workers.values():
        worker.actions.unset("weight")
    follow()
    assert (runtime.weights, pool.shares._weights) == ({"a": 8}, {"a": 8})


def test_a_weight_is_ignored_beside_a_scheduler_of_the_application(make_app: Callable[..., Lowkiq]) -> None:
    app = make_app(build_scheduler=Seq)
    worker = app.worker(queue_name="a", shards_count=2)(lambda _: None)
    runtime = runtime_of(app)
    (pool,) = {thread.pool for thread in make_threads(runtime)}
    worker.actions.set(weight=3)
    LiveSettings(runtime, pool.leases, [pool])()
    assert (runtime.weights, type(pool._scheduler)) == ({}, Seq)


def test_a_weight_of_an_async_queue_is_told_to_be_ignored(make_nodes: Callable[..., Nodes]) -> None:
    nodes = make_nodes(asynchronous=True, shards_count=1)
    node = nodes.start(node={"queues": {"jobs": 8}}).wait_ready()
    assert [row["settings"] for row in node.logged("setting_ignored")] == [{"weight": 8}]
    nodes.worker.actions.set(weight=3)
    wait_until(lambda: [row["settings"] for row in node.logged("setting_ignored")] == [{"weight": 8}, {"weight": 3}])


@pytest.mark.parametrize("asynchronous", [False, True], ids=["thread", "task"])
def test_a_node_that_runs_follows_within_two_seconds(make_nodes: Callable[..., Nodes], *, asynchronous: bool) -> None:
    """It is rung: its beats are further apart elsewhere."""
    nodes = make_nodes(asynchronous=asynchronous, shards_count=1, concurrency=1, batch_size=1)
    node = nodes.start().wait_ready()
    nodes.worker.actions.set(batch_size=4, concurrency=2, who="ann")
    wait_until(lambda: node.logged("settings_changed"), within=2)
    nodes.worker.actions.pause()
    nodes.push(*({"id": str(n), "payload": {}} for n in range(16)))
    nodes.worker.actions.resume()
    wait_until(nodes.is_done)
    assert max(len(row[2]) for row in nodes.records("start")) == 4


def test_max_retry_count_is_followed(make_nodes: Callable[..., Nodes]) -> None:
    nodes = make_nodes(shards_count=1, max_retry_count=25)
    nodes.worker.actions.set(max_retry_count=0)
    nodes.start().wait_ready()
    nodes.push({"id": "a", "payload": {"failures": 9}})
    wait_until(lambda: nodes.metrics().morgue_length == 1)


def test_the_level_of_the_log_is_followed(make_nodes: Callable[..., Nodes]) -> None:
    nodes = make_nodes(shards_count=1)
    node = nodes.start().wait_ready()
    nodes.worker.actions.set(log_level="error")
    wait_until(lambda: node.logged("settings_changed"))
    nodes.push({"id": "a", "payload": {"failures": 1}})
    wait_until(lambda: nodes.metrics().failed == 1)
    wait_until(nodes.is_done)
    assert not node.logged("jobs_failed")
    nodes.worker.actions.unset("log_level")
    wait_until(lambda: [row for row in node.logged("settings_changed") if row["settings"] == {}])
