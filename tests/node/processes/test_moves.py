"""Shards change hands while jobs of them run that take long: nobody else waits for those."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable
from functools import partial
from itertools import count
from typing import Any

import pytest

from lowkiq.admin.resharding import read_layout
from lowkiq.job import shard_of
from lowkiq.queue.shard import Shard
from tests.node.nodes import NodeProcess, Nodes, overlaps
from tests.support import wait_until

SHARDS = 4
#: Options of nodes that share the shards among themselves.
ELASTIC = {"is_elastic": True}


@pytest.fixture
def nodes(make_nodes: Callable[..., Nodes]) -> Nodes:
    return make_nodes(shards_count=SHARDS)


def ids_of(shard: int, name: str, shards_count: int = SHARDS) -> Iterable[str]:
    """Ids of a shard."""
    return (id for number in count() if shard_of((id := f"{name}{number}").encode(), shards_count) == shard)


def some(name: str, each: int = 3) -> list[str]:
    """Ids of all shards."""
    return [id for shard in range(SHARDS) for _, id in zip(range(each), ids_of(shard, name), strict=False)]


def owners(nodes: Nodes) -> list[str | None]:
    shards = [Shard(nodes.namespace, "jobs", index, SHARDS) for index in range(SHARDS)]
    found = [nodes.app.redis().hget(f"{shard.prefix}owner", "node") for shard in shards]
    return [None if name is None else name.decode() for name in found]  # type: ignore[union-attr]


def pids_of(nodes: Nodes) -> set[int]:
    """Who owns shards; 0: nobody."""
    return {int(name.split(":")[1]) if name else 0 for name in owners(nodes)}


def has_shards(nodes: Nodes, shards_count: int) -> bool:
    """The queue has so many, and none of those before."""
    layout = read_layout(nodes.app.caller, nodes.namespace, "jobs")
    return layout is not None and not layout.is_moving and layout.shards_count == shards_count


def begin(nodes: Nodes, **options: Any) -> tuple[NodeProcess, list[str]]:
    """A node that runs a job of each shard, which last until the gate is open."""
    first = nodes.start(threads_per_node=6, node=ELASTIC, **options).wait_ready()
    slow = some("slow", 1)
    nodes.push(*({"id": id, "payload": {"gate": "go"}} for id in slow))
    wait_until(lambda: all(nodes.started(id) for id in slow))
    return first, slow


def strangers_run(nodes: Nodes, name: str) -> None:
    """Other ids of all shards run, whatever lasts there; what is pushed to those that run waits for them."""
    strangers = some(name)
    nodes.push(*({"id": id, "payload": {}} for id in strangers))
    wait_until(lambda: all(nodes.ended(id) for id in strangers))


def end(nodes: Nodes, slow: list[str]) -> None:
    """What was pushed to the slow ones runs behind them; and nothing has run twice, nor beside itself."""
    nodes.push(*({"id": id, "payload": {"second": True}} for id in slow))
    strangers_run(nodes, "last")
    assert not any(nodes.ended(id) for id in slow)
    nodes.open("go")
    wait_until(nodes.is_done)
    starts = [id for _, _, jobs, *_ in nodes.records("start") for id in jobs]
    assert overlaps(nodes.records("start", "end", "overlap")) == []
    assert all(starts.count(id) == (2 if id in slow else 1) for id in starts)
    assert nodes.crashes() == 0


def test_a_node_that_joins_gets_its_part_though_jobs_of_it_last(nodes: Nodes) -> None:
    first, slow = begin(nodes)
    second = nodes.start(node=ELASTIC).wait_ready()
    wait_until(lambda: pids_of(nodes) == {first.pid, second.pid})
    strangers_run(nodes, "joined")
    end(nodes, slow)
    assert not first.logged("lease_lost")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_node_that_ends_hands_over_all_at_once_and_goes_when_its_jobs_are_done(nodes: Nodes, number: int) -> None:
    first, slow = begin(nodes, drain_timeout=600)
    second = nodes.start(node=ELASTIC).wait_ready()
    first.send(number)
    wait_until(lambda: pids_of(nodes) == {second.pid})
    strangers_run(nodes, "ended")
    assert first.is_running()
    end(nodes, slow)
    first.wait()
    assert not first.logged("lease_lost") and not first.logged("abandoned")


def test_jobs_that_outlast_their_nodes_hold_keep_their_leases(nodes: Nodes) -> None:
    first, slow = begin(nodes, drain_timeout=600, lease_ttl=1)
    second = nodes.start(node=ELASTIC, lease_ttl=1).wait_ready()
    first.send(signal.SIGTERM)
    wait_until(lambda: pids_of(nodes) == {second.pid})
    away, redis = f"{Shard(nodes.namespace, 'jobs', 0, SHARDS).prefix}away", nodes.app.redis()
    for _ in range(3):  # it is renewed again and again
        before = redis.hgetall(away)
        assert len(before) == 1
        wait_until(lambda: redis.hgetall(away) != before)  # noqa: B023
    strangers_run(nodes, "kept")
    end(nodes, slow)
    assert not second.logged("claim_restored")


def test_jobs_of_a_node_that_dies_after_it_has_left_run_again(nodes: Nodes) -> None:
    first, slow = begin(nodes, drain_timeout=600, lease_ttl=2)
    second = nodes.start(node=ELASTIC, lease_ttl=2).wait_ready()
    first.send(signal.SIGTERM)
    wait_until(lambda: pids_of(nodes) == {second.pid})
    first.kill()
    nodes.open("go")
    wait_until(nodes.is_done)
    starts = [id for _, _, jobs, *_ in nodes.records("start") for id in jobs]
    assert sorted(starts) == sorted([*slow, *slow])
    assert second.logged("claim_restored")


def test_a_job_that_outlasts_its_nodes_hold_can_be_cancelled(nodes: Nodes) -> None:
    first = nodes.start(threads_per_node=6, node=ELASTIC, drain_timeout=600).wait_ready()
    (id,) = some("slow", 1)[:1]
    nodes.push({"id": id, "payload": {"until_cancelled": True}})
    wait_until(lambda: nodes.started(id))
    second = nodes.start(node=ELASTIC).wait_ready()
    first.send(signal.SIGTERM)
    wait_until(lambda: pids_of(nodes) == {second.pid})
    assert nodes.worker.actions.cancel([id]) == 1
    wait_until(lambda: nodes.records("was_cancelled"))
    first.wait()
    wait_until(nodes.is_done)


def test_a_node_that_comes_back_has_its_part_at_once(make_nodes: Callable[..., Nodes]) -> None:
    nodes = make_nodes(shards_count=SHARDS)
    slow = some("slow", 1)
    nodes.push(*({"id": id, "payload": {"gate": "go"}} for id in slow))
    first = nodes.start(threads_per_node=6, lease_ttl=6, node={"node_number": 0, "number_of_nodes": 2}).wait_ready()
    wait_until(lambda: all(nodes.started(id) for id in slow))
    second = nodes.start(lease_ttl=6, node={"node_number": 1, "number_of_nodes": 2}).wait_ready()
    wait_until(lambda: pids_of(nodes) == {first.pid, second.pid})
    strangers_run(nodes, "back")
    end(nodes, slow)


@pytest.mark.parametrize("counts", [(8,), (6, 4)])
def test_a_queue_is_resharded_though_jobs_of_it_last(nodes: Nodes, counts: tuple[int, ...]) -> None:
    """Also again: what runs is told of where its ids have gone to."""
    first, slow = begin(nodes)
    second = nodes.start(node=ELASTIC).wait_ready()
    for shards_count in counts:
        nodes.worker.actions.reshard(shards_count)
        wait_until(partial(has_shards, nodes, shards_count))
        strangers_run(nodes, f"of-{shards_count}-")
    end(nodes, slow)
    assert not first.logged("claim_restored") and not second.logged("claim_restored")


def test_jobs_that_fail_or_keep_something_do_so_though_their_shard_was_moved(nodes: Nodes) -> None:
    nodes.push({"id": "a", "payload": {"gate": "go", "failures": 1, "checkpoint": "half"}})
    first = nodes.start(threads_per_node=6, node=ELASTIC).wait_ready()
    wait_until(lambda: nodes.is_at("go"))
    nodes.worker.actions.reshard(3)
    wait_until(lambda: first.logged("resharded"))
    nodes.open("go")
    wait_until(lambda: nodes.metrics().failed == 1)
    nodes.worker.actions.perform_now(["a"])
    wait_until(nodes.is_done)
    assert nodes.metrics().processed == 1
