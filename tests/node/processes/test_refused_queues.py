"""A queue that Redis knows otherwise than the application: a node leaves it alone, and runs the others."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

import pytest

from lowkiq import Lowkiq
from tests.node.nodes import Nodes
from tests.support import wait_until


@pytest.fixture
def nodes(make_nodes: Callable[..., Nodes]) -> Nodes:
    """Two queues of three shards each."""
    return make_nodes(others=3)


@pytest.fixture
def push_other(nodes: Nodes) -> Iterator[Callable[[str], None]]:
    """Pushes a job to the other queue, as a producer that agrees with Redis does."""
    with_others = Lowkiq(redis_url=nodes.app.settings.redis_url, namespace=nodes.namespace)
    worker = with_others.worker(queue_name="others", shards_count=3)(lambda _: None)
    yield lambda name: worker.perform_async([{"id": name}]) and None
    with_others.close()


def refusals(nodes: Nodes) -> list[str]:
    return [alert.text for alert in nodes.app.nodes().alerts if alert.kind == "refused"]


def know(nodes: Nodes, layout: str, *, shards: bool = False) -> None:
    """Redis knows the other queue with this layout; and, with `shards`, each of its shards."""
    redis = nodes.app.redis()
    redis.hset(f"{nodes.namespace}:queues", "others", layout)
    if shards:
        for shard in range(3):
            redis.hset(f"{nodes.namespace}:{{others:{shard}}}:meta", "layout", layout)


REFUSALS = [
    ("4:3", "queue others has layout 4, this Lowkiq"),
    ("so many", 'queue others: "so many" is no layout'),
]


@pytest.mark.parametrize(("layout", "refusal"), REFUSALS)
def test_at_boot_the_others_run_and_it_is_taken_up_once_mended(
    nodes: Nodes, push_other: Callable[[str], None], layout: str, refusal: str
) -> None:
    know(nodes, layout)
    node = nodes.start().wait_ready()
    nodes.push({"id": "a", "payload": {}})
    wait_until(lambda: nodes.ended("a"))
    (alert,) = wait_until(lambda: refusals(nodes))
    assert f"1 node leaves queue others alone: {refusal}" in alert
    assert not nodes.app.nodes().is_well
    assert not nodes.app.redis().exists(f"{nodes.namespace}:{{others:0}}:owner")
    know(nodes, "3")
    push_other("b")
    wait_until(lambda: nodes.started("b"))
    wait_until(lambda: not refusals(nodes))
    assert len(node.logged("queue_refused")) == len(node.logged("queue_taken_up")) == 1
    node.send(signal.SIGTERM)
    assert node.wait() == 0


LAYOUTS = [REFUSALS[0][0], *(pytest.param(layout, marks=pytest.mark.long) for layout, _ in REFUSALS[1:])]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_running_node_goes_on_with_the_others_and_takes_it_up_once_mended(
    nodes: Nodes, push_other: Callable[[str], None], layout: str
) -> None:
    node = nodes.start().wait_ready()
    push_other("before")
    wait_until(lambda: nodes.started("before"))
    know(nodes, layout, shards=True)
    for shard in range(3):  # what a producer of that layout would have pushed
        nodes.app.redis().zadd(f"{nodes.namespace}:{{others:{shard}}}:due", {"x": 1.0})
    (alert,) = wait_until(lambda: refusals(nodes))
    assert "1 node leaves queue others alone" in alert
    nodes.push({"id": "a", "payload": {}})
    wait_until(lambda: nodes.ended("a"))
    for shard in range(3):
        nodes.app.redis().zrem(f"{nodes.namespace}:{{others:{shard}}}:due", "x")
    know(nodes, "3", shards=True)
    push_other("after")
    wait_until(lambda: nodes.started("after"))
    wait_until(lambda: not refusals(nodes))
    assert node.is_running()


def test_a_burst_does_not_wait_for_it(nodes: Nodes, push_other: Callable[[str], None]) -> None:
    push_other("b")
    know(nodes, "4")
    nodes.push({"id": "a", "payload": {}})
    assert nodes.start(node={"burst": True}).wait() == 0
    assert (nodes.ended("a"), nodes.started("b")) == (True, False)
