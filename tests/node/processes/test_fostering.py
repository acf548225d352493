"""Fostering: shards of a node that is away are run by others, and given back to it."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from tests.node.nodes import Nodes, overlaps
from tests.support import wait_until

SHARDS = 6
IDS = [str(number) for number in range(60)]


@pytest.fixture
def nodes(make_nodes: Callable[..., Nodes]) -> Nodes:
    return make_nodes(shards_count=SHARDS)


def push_to_all(nodes: Nodes, round: int) -> None:
    nodes.push(*({"id": id, "payload": {"round": round}, "score": round} for id in IDS))


def owned(nodes: Nodes, pid: int) -> tuple[list[int], list[int]]:
    """The shards that a node says it runs, and those of them for which it only stands in."""
    health = next((node for node in nodes.app.nodes().nodes if node.pid == pid), None)
    return (sorted(health.owned.get("jobs", [])), sorted(health.fostered.get("jobs", []))) if health else ([], [])


def test_shards_of_a_node_that_never_came_are_run_by_another_and_given_back_when_it_comes(nodes: Nodes) -> None:
    push_to_all(nodes, 0)
    first = nodes.start(lease_ttl=6, node={"node_number": 0, "number_of_nodes": 2}).wait_ready()
    wait_until(nodes.is_done)
    wait_until(lambda: owned(nodes, first.pid) == ([0, 1, 2, 3, 4, 5], [1, 3, 5]))
    second = nodes.start(lease_ttl=6, node={"node_number": 1, "number_of_nodes": 2}).wait_ready()
    wait_until(lambda: owned(nodes, second.pid) == ([1, 3, 5], []))
    wait_until(lambda: owned(nodes, first.pid) == ([0, 2, 4], []))
    push_to_all(nodes, 1)
    wait_until(nodes.is_done)
    assert overlaps(nodes.records("start", "end", "overlap")) == []
    assert not first.logged("lease_lost")
    assert {pid for _, pid, jobs, *_ in nodes.records("start") if jobs.get(IDS[0])} <= {first.pid, second.pid}


def test_a_job_that_runs_at_a_foster_ends_there_though_the_shard_is_given_back_at_once(nodes: Nodes) -> None:
    nodes._options["concurrency"] = 1  # so a job of each shard runs
    nodes.push(*({"id": id, "payload": {"gate": "go"}} for id in IDS[:20]))
    first = nodes.start(lease_ttl=6, threads_per_node=6, node={"node_number": 0, "number_of_nodes": 2}).wait_ready()
    wait_until(lambda: len(nodes.records("start")) == SHARDS)
    second = nodes.start(lease_ttl=6, node={"node_number": 1, "number_of_nodes": 2}).wait_ready()
    wait_until(lambda: len(first.logged("foster_ended")) == SHARDS // 2)
    wait_until(lambda: owned(nodes, second.pid) == ([1, 3, 5], []))
    assert not nodes.records("end")
    nodes.open("go")
    wait_until(nodes.is_done)
    assert overlaps(nodes.records("start", "end", "overlap")) == []
    starts = [id for _, _, jobs, *_ in nodes.records("start") for id in jobs]
    assert sorted(starts) == sorted(IDS[:20])


@pytest.mark.long
def test_a_node_that_is_quiet_stands_in_for_nobody(nodes: Nodes) -> None:
    node = nodes.start(node={"node_number": 0, "number_of_nodes": 2}).wait_ready()
    node.send(signal.SIGTSTP)
    wait_until(lambda: node.logged("quiet"))
    push_to_all(nodes, 0)
    # The only node is asked again and again.
    wait_until(lambda: node.logged("unowned_shards"))
    key = f"{nodes.namespace}:unowned"
    left = nodes.app.redis().ttl(key)
    wait_until(lambda: nodes.app.redis().ttl(key) < left)
    wait_until(lambda: nodes.app.redis().ttl(key) >= left)
    assert len(node.logged("unowned_shards")) == 1  # it is not told over and over
    assert not node.logged("foster") and nodes.records("start") == []


def test_a_foster_that_is_never_idle_gives_its_shards_back_all_the_same(nodes: Nodes) -> None:
    nodes.push(*({"id": str(number), "payload": {"sleep": 0.1}} for number in range(1_800)))
    first = nodes.start(lease_ttl=6, threads_per_node=6, node={"node_number": 0, "number_of_nodes": 2}).wait_ready()
    wait_until(lambda: owned(nodes, first.pid)[1] == [1, 3, 5])
    second = nodes.start(lease_ttl=6, node={"node_number": 1, "number_of_nodes": 2}).wait_ready()
    wait_until(lambda: len(first.logged("foster_ended")) == SHARDS // 2)
    wait_until(lambda: owned(nodes, second.pid) == ([1, 3, 5], []))
    assert nodes.metrics().length > 0  # it was busy all the time
    assert overlaps(nodes.records("start", "end", "overlap")) == []
