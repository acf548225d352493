"""Suspects: jobs that ran when their node died. Nobody waits for them; the second time they have their own process."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from tests.node.nodes import Nodes
from tests.support import wait_until

LONG = ("long-0", "long-1", "long-2")


def pids_of(nodes: Nodes, id: str) -> list[int]:
    """The processes in which an id has started, in their order."""
    return [row[1] for row in nodes.records("start") if id in row[2]]


def strangers_run(nodes: Nodes, name: str) -> None:
    """Others run at once, while those still do."""
    ids = [f"{name}-{number}" for number in range(60)]
    nodes.push(*({"id": id, "payload": {}} for id in ids))
    wait_until(lambda: {*ids} <= {id for row in nodes.records("end") for id in row[2]})
    assert not any(nodes.ended(id) for id in LONG)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_death_delays_nobody(nodes: Nodes, asynchronous: bool) -> None:
    nodes._options["asynchronous"] = asynchronous
    nodes.push(*({"id": id, "payload": {"gate": "go"}} for id in LONG))
    for death in range(3):
        node = nodes.start(node={"name": f"n{death}", "dead_nodes": [f"n{death - 1}"]}, lease_ttl=60).wait_ready()
        wait_until(lambda: all(len(pids_of(nodes, id)) > death for id in LONG))  # noqa: B023
        strangers_run(nodes, f"stranger-{death}")
        assert all((pids_of(nodes, id)[-1] == node.pid) is (death < 2) for id in LONG)
        if death < 2:
            node.kill()
    nodes.open("go")
    wait_until(nodes.is_done)
    assert nodes.crashes() == nodes.metrics().morgue_length == 0


def test_what_kills_its_own_process_is_buried_and_its_node_lives(nodes: Nodes) -> None:
    nodes.push({"id": "poison", "payload": {"kill": True}}, {"id": "innocent", "payload": {"gate": "go"}})
    for death in range(2):
        node = nodes.start(node={"name": f"n{death}", "dead_nodes": [f"n{death - 1}"]}, lease_ttl=60)
        assert node.wait() == -signal.SIGKILL
    node = nodes.start(node={"dead_nodes": ["n1"]}, lease_ttl=60).wait_ready()
    wait_until(lambda: nodes.metrics().morgue_length == 1)
    nodes.open("go")
    wait_until(nodes.is_done)
    assert node.is_running()
    (dead,) = nodes.worker.queries.morgue_fetch(["poison"])
    assert dead.error == "the node that ran this job died 3 times (max_crashes)"


@pytest.mark.parametrize("asynchronous", [False, True])
def test_one_for_which_its_node_can_make_no_process_is_not_lost(nodes: Nodes, asynchronous: bool) -> None:
    nodes._options.update(asynchronous=asynchronous, pairs=1)  # one is the fork server's
    nodes.push({"id": "suspect", "payload": {}})
    for shard in nodes.app.shards("jobs", 3):
        for field in ("crashes", "crowds"):
            nodes.app.redis().hset(f"{shard.prefix}{field}", "suspect", 1)
    assert nodes.start(drain_timeout=1, lease_ttl=1).wait() != 0
    nodes._options.update(pairs=100)
    nodes.start(lease_ttl=1).wait_ready()
    wait_until(lambda: nodes.metrics().processed == 1)
    assert pids_of(nodes, "suspect")
    assert nodes.is_done()


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_suspect_of_a_queue_that_was_resharded_has_a_process_of_its_own(nodes: Nodes, asynchronous: bool) -> None:
    nodes._options["asynchronous"] = asynchronous
    node = nodes.start().wait_ready()
    nodes.worker.actions.reshard(2)
    wait_until(lambda: node.logged("resharded") and len(nodes.app.shards("jobs", 3)) == 2)
    for shard in nodes.app.shards("jobs", 3):
        nodes.app.redis().hset(f"{shard.prefix}crowds", "suspect", 1)
    nodes.push({"id": "suspect", "payload": {}})
    wait_until(nodes.is_done)
    assert len(pids_of(nodes, "suspect")) == 1  # it was given its payload, not the payload's bytes
    assert pids_of(nodes, "suspect")[0] != node.pid


@pytest.mark.parametrize("options", [{"perform_timeout": 1}, {"max_running": 1}])
def test_a_suspect_is_bound_by_its_options(nodes: Nodes, options: dict[str, Any]) -> None:
    """One that takes too long is killed, as nothing else can end it, which is a failure."""
    nodes._options.update(options)

    nodes.push({"id": "suspect", "payload": {"gate": "go"}})
    for prefix in {shard.prefix for shard in nodes.app.shards("jobs", 3)}:
        nodes.app.redis().hset(f"{prefix}crashes", "suspect", 1)
        nodes.app.redis().hset(f"{prefix}crowds", "suspect", 1)
    node = nodes.start().wait_ready()
    wait_until(lambda: pids_of(nodes, "suspect"))
    assert pids_of(nodes, "suspect")[0] != node.pid
    if "perform_timeout" in options:
        wait_until(lambda: nodes.records("retry_in"))
    nodes.open("go")
    wait_until(nodes.is_done)
