"""A node whose threads are all stuck in jobs that were to stop."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lowkiq.admin.beats.health import read_health
from lowkiq.admin.past.incidents import read_incidents
from lowkiq.node.spares import MOST
from tests.node.nodes import Nodes, overlaps
from tests.support import wait_until


@pytest.fixture
def nodes(make_nodes: Callable[..., Nodes]) -> Nodes:
    return make_nodes(perform_timeout=0.2, concurrency=20)


def stick(nodes: Nodes, count: int) -> list[str]:
    """Jobs that nothing stops, until the gate is open."""
    ids = [f"stuck{number}" for number in range(count)]
    nodes.push(*({"id": id, "payload": {"gate": "go"}} for id in ids))
    wait_until(lambda: all(map(nodes.started, ids)))
    return ids


def threads(nodes: Nodes) -> list[str]:
    return [thread.name for node in read_health(nodes.app.caller, nodes.namespace) for thread in node.threads]


def test_a_spare_thread_runs_what_else_there_is_until_another_is_back(nodes: Nodes) -> None:
    node = nodes.start(threads_per_node=2).wait_ready()
    stick(nodes, 2)
    others = [f"other{number}" for number in range(20)]
    nodes.push(*({"id": id, "payload": {}} for id in others))
    wait_until(lambda: all(map(nodes.ended, others)))
    assert node.logged("threads_stuck")
    wait_until(lambda: "lowkiq-spare-0" in threads(nodes))
    (told,) = read_incidents(nodes.app.caller, nodes.namespace, kind="hang")
    assert told.says == (
        "All 2 threads that share shards are stuck in jobs that were to stop: a spare one runs what else there is"
    )
    nodes.open("go")
    wait_until(lambda: threads(nodes) == ["lowkiq-worker-0", "lowkiq-worker-1"])
    nodes.push(*({"id": id, "payload": {}} for id in others))
    wait_until(nodes.is_done)
    assert nodes.metrics().processed == 42
    assert node.is_running()


def test_a_node_of_which_all_spares_are_stuck_ends_and_what_held_it_up_is_a_suspect(nodes: Nodes) -> None:
    node = nodes.start(threads_per_node=1, drain_timeout=1, lease_ttl=3)
    ids = stick(nodes, 1 + MOST)
    nodes.push({"id": "other", "payload": {}})
    assert node.wait() == 75
    assert node.logged("stopped_by")
    second = nodes.start(threads_per_node=6, lease_ttl=3)
    wait_until(lambda: nodes.ended("other"))
    wait_until(lambda: all(len(runs_of(nodes, id)) == 2 for id in ids))
    assert nodes.crashes() == len(ids)
    nodes.open("go")
    wait_until(nodes.is_done)
    assert overlaps(nodes.records("start", "end", "overlap"), dead={node.pid}) == []
    assert not second.logged("threads_stuck")


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_a_node_whose_only_thread_is_in_a_long_job_leaves_its_shards_to_one_that_is_free(
    make_nodes: Callable[..., Nodes], isolation: str
) -> None:
    """That job may take what it likes, and is not to stop."""
    nodes = make_nodes(shards_count=6, isolation=isolation, away_after=1)
    started = [nodes.start(node={"is_elastic": True}, threads_per_node=1).wait_ready() for _ in range(2)]
    wait_until(lambda: all(node.logged("part_changed") for node in started) and len(nodes.held_leases()) == 6)
    stick(nodes, 1)
    others = [f"other{number}" for number in range(20)]
    nodes.push(*({"id": id, "payload": {}} for id in others))
    wait_until(lambda: all(map(nodes.ended, others)))
    assert not nodes.ended("stuck0")
    nodes.open("go")
    wait_until(nodes.is_done)
    assert nodes.metrics().processed == 21


def runs_of(nodes: Nodes, id: str) -> list[object]:
    return [row for row in nodes.records("start") if id in row[2]]
