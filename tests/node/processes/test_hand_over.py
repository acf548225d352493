"""A node that ends, or retires, hands its shards over at once: none waits for the long job of another."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from lowkiq.job import shard_of
from tests.node.nodes import NodeProcess, Nodes, overlaps
from tests.support import wait_until

SHARDS = 6
#: An id of each shard.
IDS = [next(str(n) for n in range(100) if shard_of(str(n).encode(), SHARDS) == shard) for shard in range(SHARDS)]
PAIR = [{"node_number": number, "number_of_nodes": 2} for number in range(2)]


@pytest.fixture
def nodes(make_nodes: Callable[..., Nodes]) -> Nodes:
    """They never look for shards that nobody has, nor see the end of a lease: they take over what they are asked to."""
    return make_nodes(shards_count=SHARDS, fosters_unasked=False)


@pytest.fixture(params=[signal.SIGTERM, signal.SIGHUP])
def end(request: pytest.FixtureRequest) -> signal.Signals:
    """Drain, or retire."""
    number: signal.Signals = request.param
    return number


def at_a_gate(nodes: Nodes, *shards: int) -> None:
    """A job of each shard runs until the gate opens."""
    nodes.push(*({"id": IDS[shard], "payload": {"gate": "go"}} for shard in shards))
    wait_until(lambda: all(nodes.started(IDS[shard]) for shard in shards))


def all_end_elsewhere(nodes: Nodes, leaver: NodeProcess, *shards: int) -> None:
    """Jobs of these shards are done by another node."""
    nodes.push(*({"id": f"{IDS[shard]}", "payload": {"round": 2}} for shard in shards))
    wait_until(lambda: all(nodes.ended(IDS[shard]) for shard in shards))
    assert leaver.pid not in {row[1] for row in nodes.records("start") if row[2].keys() & {IDS[s] for s in shards}}


@pytest.mark.parametrize("threads", [1, 5])
def test_its_siblings_run_its_other_shards_while_its_last_job_goes_on(
    nodes: Nodes, end: signal.Signals, threads: int
) -> None:
    """Also those of the thread that is in the job."""
    leaver = nodes.start(node=PAIR[0], threads_per_node=threads, lease_ttl=3600).wait_ready()
    sibling = nodes.start(node=PAIR[1], lease_ttl=3600).wait_ready()
    wait_until(lambda: len(nodes.held_leases()) == SHARDS and len(nodes.app.nodes().nodes) == 2)
    wait_until(
        lambda: len(nodes.app.redis().pubsub_channels()) == 2, "both listen: with such a lease no look comes after it"
    )
    at_a_gate(nodes, 0)
    leaver.send(end)
    wait_until(lambda: leaver.logged("draining") or leaver.logged("retiring"))
    all_end_elsewhere(nodes, leaver, 2, 4)
    assert not nodes.ended(IDS[0])
    nodes.open("go")
    assert leaver.wait() == 0
    nodes.push({"id": IDS[0], "payload": {"round": 2}})
    wait_until(nodes.is_done)
    assert nodes.records("start")[-1][1] == sibling.pid
    wait_until(lambda: (now := nodes.app.nodes()).is_well or now.missing == [0])
    assert overlaps(nodes.records("start", "end", "overlap")) == []


def test_a_successor_that_stands_by_gets_each_shard_as_it_is_released(nodes: Nodes, end: signal.Signals) -> None:
    leaver = nodes.start(node={"name": "leaver"}, threads_per_node=1, lease_ttl=3600).wait_ready()
    at_a_gate(nodes, 0)
    successor = nodes.start(node={"name": "successor"}, lease_ttl=3600).wait_ready()
    assert len(successor.logged("standing_by")) == SHARDS
    leaver.send(end)
    all_end_elsewhere(nodes, leaver, *range(1, SHARDS))
    nodes.open("go")
    assert leaver.wait() == 0
    nodes.push({"id": IDS[0], "payload": {"round": 2}})
    wait_until(nodes.is_done)
    assert nodes.records("start")[-1][1] == successor.pid


def test_two_of_one_number_are_not_doubled_while_one_retires(nodes: Nodes) -> None:
    leaver = nodes.start(node={"name": "leaver"}).wait_ready()
    at_a_gate(nodes, 0)
    nodes.start(node={"name": "successor"}).wait_ready()
    wait_until(lambda: nodes.app.nodes().doubled == [0])
    leaver.send(signal.SIGHUP)
    wait_until(lambda: nodes.app.nodes().is_well)
    assert [node.state for node in nodes.app.nodes().nodes] == ["retiring", "ready"]


# ── retiring ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_node_that_retires_has_no_deadline_and_renews_what_it_runs(nodes: Nodes) -> None:
    node = nodes.start(drain_timeout=0.1, lease_ttl=6).wait_ready()
    at_a_gate(nodes, 0, 1)
    node.send(signal.SIGHUP)
    wait_until(lambda: not nodes.held_leases())
    key = f"{nodes.namespace}:{{jobs:0}}:away"
    (first,) = nodes.app.redis().hvals(key)
    wait_until(lambda: float(nodes.app.redis().hvals(key)[0].split()[0]) > float(first.split()[0]) + 1.5)
    nodes.push({"id": "later", "payload": {}})
    assert node.is_running() and not node.logged("lease_lost")
    nodes.open("go")
    assert node.wait() == 0
    assert (nodes.metrics().processed, nodes.metrics().length, nodes.crashes(), nodes.held_leases()) == (2, 1, 0, [])


def test_term_while_it_retires_sets_it_the_usual_deadline(nodes: Nodes) -> None:
    node = nodes.start(drain_timeout=0.2).wait_ready()
    at_a_gate(nodes, 0)
    node.send(signal.SIGHUP)
    wait_until(lambda: not nodes.held_leases())
    node.send(signal.SIGTERM)
    assert node.wait() == 5
    assert (len(node.logged("retiring")), len(node.logged("draining"))) == (1, 1)


def test_hup_does_not_lengthen_a_drain(nodes: Nodes) -> None:
    node = nodes.start(drain_timeout=1).wait_ready()
    at_a_gate(nodes, 0)
    node.send(signal.SIGTERM)
    wait_until(lambda: node.logged("draining"))
    node.send(signal.SIGHUP)
    assert node.wait() == 5
    assert not node.logged("retiring")
