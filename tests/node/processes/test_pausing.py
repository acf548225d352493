"""A queue that is paused while nodes run it: nothing starts once they have said so, and what runs is finished."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import pytest

from tests.node.nodes import Nodes
from tests.support import wait_until

BOTH = pytest.mark.parametrize("asynchronous", [False, True], ids=["thread", "task"])


@BOTH
def test_nothing_starts_after_it_was_confirmed_and_all_is_done_after_it(
    make_nodes: Callable[..., Nodes], *, asynchronous: bool
) -> None:
    nodes = make_nodes(asynchronous=asynchronous)
    for _ in range(2):
        nodes.start()
    nodes.push(*({"id": str(n), "payload": {"sleep": 0.005}} for n in range(1_000)))
    wait_until(lambda: nodes.recorded() > 20)
    paused = nodes.worker.actions.pause("stock-taking", who="ann")
    assert paused.is_confirmed
    wait_until(lambda: nodes.metrics().busy == 0)
    before = nodes.records("start")
    nodes.push({"id": "later", "payload": {}})
    time.sleep(0.5)  # nothing can be waited for: nothing is to happen
    assert nodes.records("start") == before
    assert len(before) < 1_001
    assert nodes.worker.actions.resume(who="ann") == 3
    wait_until(nodes.is_done)
    assert {id for row in nodes.records("end") for id in row[2]} == {*map(str, range(1_000)), "later"}


@BOTH
def test_a_job_that_runs_is_finished(make_nodes: Callable[..., Nodes], *, asynchronous: bool) -> None:
    nodes = make_nodes(asynchronous=asynchronous, shards_count=1)
    nodes.start().wait_ready()
    nodes.push({"id": "a", "payload": {"gate": "go"}})
    wait_until(lambda: nodes.started("a"))
    assert nodes.worker.actions.pause().is_confirmed
    nodes.open("go")
    wait_until(lambda: nodes.metrics().processed == 1)


def test_a_push_to_an_idle_node_waits(one_shard: Nodes) -> None:
    """It would be handed over with the ring."""
    one_shard.start().wait_ready()
    one_shard.push({"id": "a", "payload": {}})
    wait_until(one_shard.is_done)
    assert one_shard.worker.actions.pause().is_confirmed
    one_shard.push({"id": "b", "payload": {}})
    assert one_shard.metrics().length == 1
    one_shard.worker.actions.resume()
    wait_until(lambda: one_shard.ended("b"))


def test_a_node_that_hangs_is_told_of_and_starts_nothing_when_it_goes_on(one_shard: Nodes) -> None:
    node = one_shard.start(lease_ttl=3).wait_ready()
    one_shard.push(*({"id": str(n), "payload": {"sleep": 0.02}} for n in range(50)))
    wait_until(lambda: one_shard.recorded() > 10)
    node.send(signal.SIGSTOP)
    paused = one_shard.worker.actions.pause(wait=0.2)
    assert not paused.is_confirmed
    assert one_shard.worker.actions.pause(wait=30).is_confirmed  # its lease has ended
    before = len(one_shard.records("start"))
    node.send(signal.SIGCONT)
    wait_until(lambda: one_shard.metrics().busy == 0 and one_shard.metrics().restless == 0)
    # The one that ran when it was stopped may have recorded its start only now.
    assert len(one_shard.records("start")) <= before + 1
    one_shard.worker.actions.resume()
    wait_until(one_shard.is_done)


def test_a_pause_outlives_its_nodes(nodes: Nodes) -> None:
    first = nodes.start(lease_ttl=3).wait_ready()
    assert nodes.worker.actions.pause().is_confirmed
    nodes.push({"id": "a", "payload": {}})
    first.kill()
    nodes.start(lease_ttl=3).wait_ready()
    wait_until(lambda: nodes.metrics().restless == 0)
    assert (nodes.metrics().paused, nodes.metrics().length) == (3, 1)
    nodes.worker.actions.resume()
    wait_until(nodes.is_done)


def test_a_burst_does_not_wait_for_what_is_paused(nodes: Nodes) -> None:
    nodes.push({"id": "a", "payload": {}})
    nodes.worker.actions.pause()
    assert nodes.start(node={"burst": True}).wait() == 0
    assert nodes.metrics().length == 1
