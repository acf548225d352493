"""A node follows live settings while it runs."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from lowkiq import Lowkiq, Worker
from lowkiq.node.leases.lease import Lease
from lowkiq.node.live_settings import LiveSettings
from lowkiq.node.threads import leases_of
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
