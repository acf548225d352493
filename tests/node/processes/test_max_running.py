"""Queues with max_running: at most so many batches run at once over all nodes, and no place is left unused."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable

import pytest

from lowkiq.admin.limits import Limit, read_limits
from lowkiq.job import shard_of
from tests.node.nodes import Nodes
from tests.support import wait_until

KINDS = pytest.mark.parametrize(
    "kind", [{}, {"asynchronous": True}, {"isolation": "process"}], ids=["thread", "task", "process"]
)


def most_at_once(nodes: Nodes) -> int:
    """By what jobs have recorded, each from its start to its end."""
    running = most = 0
    for what, *_ in nodes.records("start", "end"):
        running += 1 if what == "start" else -1
        most = max(most, running)
    return most


def places(nodes: Nodes) -> Limit | None:
    return read_limits(nodes.app.caller, nodes.namespace, ["jobs"], {}).get("jobs")


def taken(nodes: Nodes) -> int:
    found = places(nodes)
    return found.running if found else 0


def push(nodes: Nodes, count: int, **payload: object) -> None:
    nodes.push(*({"id": f"j{number}", "payload": payload} for number in range(count)))


@KINDS
def test_two_nodes_run_no_more_than_that_at_once_and_each_its_share(
    make_nodes: Callable[..., Nodes], kind: dict[str, object]
) -> None:
    nodes = make_nodes(max_running=3, shards_count=8, **kind)
    for number in range(2):
        nodes.start(node={"node_number": number, "number_of_nodes": 2}).wait_ready()
    push(nodes, 240, sleep=0.01)
    wait_until(nodes.is_done)
    assert most_at_once(nodes) == 3
    shares = Counter(pid for _, pid, *_ in nodes.records("start"))
    assert kind.get("isolation") or min(shares.values()) >= 12, "a twentieth, on whatever machine"
    assert len(shares) >= 2
    wait_until(lambda: taken(nodes) == 0)


@KINDS
def test_a_backlog_of_one_node_does_not_delay_the_shard_of_another(
    make_nodes: Callable[..., Nodes], kind: dict[str, object]
) -> None:
    nodes = make_nodes(max_running=1, shards_count=2, **kind)
    for number in range(2):
        nodes.start(node={"node_number": number, "number_of_nodes": 2}).wait_ready()
    ids: tuple[list[str], list[str]] = ([], [])
    for id in (f"j{number}" for number in range(400)):
        ids[shard_of(id.encode(), 2)].append(id)
    nodes.push(*({"id": id, "payload": {"sleep": 0.02}} for id in ids[0]))
    wait_until(lambda: nodes.recorded() > 10)
    nodes.push({"id": ids[1][0], "payload": {}})
    wait_until(lambda: nodes.started(ids[1][0]))
    assert nodes.metrics().length > 0, "all others came first"
    assert most_at_once(nodes) == 1


@KINDS
def test_a_node_goes_on_with_other_queues(make_nodes: Callable[..., Nodes], kind: dict[str, object]) -> None:
    nodes = make_nodes(max_running=1, shards_count=4, others=4, **kind)
    others = nodes.app.worker(queue_name="others", shards_count=4)(lambda _: None)
    nodes.start(threads_per_node=2).wait_ready()
    push(nodes, 8, gate="go")
    wait_until(lambda: nodes.is_at("go"))
    others.perform_async([{"id": f"other {number}", "payload": {}} for number in range(20)])
    wait_until(lambda: sum("other" in str(row[2]) for row in nodes.records("start")) == 20)
    assert nodes.metrics().processed == 0
    assert places(nodes) is not None
    nodes.open("go")
    wait_until(nodes.is_done)
    assert nodes.metrics().processed == 8


@KINDS
def test_a_killed_node_frees_its_places(make_nodes: Callable[..., Nodes], kind: dict[str, object]) -> None:
    nodes = make_nodes(max_running=2, shards_count=2, **kind)
    first = nodes.start(lease_ttl=3).wait_ready()
    push(nodes, 2, gate="go")
    wait_until(lambda: taken(nodes) == 2 and len(nodes.records("start")) == 2)
    first.kill()
    nodes.start(lease_ttl=3).wait_ready()
    nodes.open("go")
    wait_until(nodes.is_done)
    wait_until(lambda: taken(nodes) == 0)


def test_a_node_that_drains_gives_its_places_back(make_nodes: Callable[..., Nodes]) -> None:
    nodes = make_nodes(max_running=1, shards_count=1)
    node = nodes.start().wait_ready()
    push(nodes, 5, gate="go")
    wait_until(lambda: taken(nodes) == 1 and nodes.is_at("go"))
    node.send(signal.SIGTERM)
    wait_until(lambda: node.logged("draining"))
    nodes.open("go")
    assert node.wait() == 0
    assert taken(nodes) == 0


def test_whoever_starts_in_place_of_the_dead_need_not_wait(make_nodes: Callable[..., Nodes]) -> None:
    nodes = make_nodes(max_running=1, shards_count=1)
    node = nodes.start(node={"name": "one"}, lease_ttl=300).wait_ready()
    push(nodes, 1, gate="go")
    wait_until(lambda: taken(nodes) == 1 and nodes.is_at("go"))
    node.kill()
    nodes.open("go")
    nodes.start(node={"name": "two", "dead_nodes": ["one"]}, lease_ttl=300)
    wait_until(nodes.is_done)


def test_a_live_setting_raises_lowers_and_lifts_it(make_nodes: Callable[..., Nodes]) -> None:
    nodes = make_nodes(max_running=1, shards_count=6)
    nodes.start(threads_per_node=6).wait_ready()
    push(nodes, 40, gate="one")
    wait_until(lambda: len(nodes.records("start")) == 1)
    nodes.worker.actions.set(max_running=3)
    wait_until(lambda: len(nodes.records("start")) == 3 and taken(nodes) == 3)
    nodes.worker.actions.set(max_running=None)
    wait_until(lambda: len(nodes.records("start")) == 6)
    nodes.worker.actions.set(max_running=2)
    nodes.open("one")
    wait_until(nodes.is_done)
    push(nodes, 40, sleep=0.005)
    before = len(nodes.records())
    wait_until(nodes.is_done)
    running = most = 0
    for what, *_ in nodes.records()[before:]:
        running += {"start": 1, "end": -1}.get(what, 0)
        most = max(most, running)
    assert most <= 2


@KINDS
def test_it_goes_on_when_a_paused_queue_is_resumed(make_nodes: Callable[..., Nodes], kind: dict[str, object]) -> None:
    nodes = make_nodes(max_running=2, shards_count=4, **kind)
    for _ in range(2):
        nodes.start().wait_ready()
    push(nodes, 200, sleep=0.005)
    wait_until(lambda: nodes.recorded() > 20)
    assert nodes.worker.actions.pause("stock-taking").is_confirmed
    wait_until(lambda: nodes.metrics().busy == 0 and taken(nodes) == 0)
    nodes.worker.actions.resume()
    wait_until(nodes.is_done)
    assert most_at_once(nodes) == 2


@KINDS
def test_with_burst_all_is_done(make_nodes: Callable[..., Nodes], kind: dict[str, object]) -> None:
    nodes = make_nodes(max_running=1, shards_count=3, **kind)
    push(nodes, 30, sleep=0.002)
    assert nodes.start(node={"burst": True}).wait() == 0
    assert nodes.is_done()
    assert most_at_once(nodes) == 1
    assert taken(nodes) == 0


@KINDS
def test_suspects_need_a_place_too(make_nodes: Callable[..., Nodes], kind: dict[str, object]) -> None:
    nodes = make_nodes(max_running=1, shards_count=1, **kind)
    first = nodes.start(lease_ttl=3, node={"name": "one"}).wait_ready()
    push(nodes, 3, gate="go")
    wait_until(lambda: nodes.is_at("go"))
    first.kill()
    nodes.open("go")
    nodes.start(lease_ttl=3, node={"name": "two", "dead_nodes": ["one"]})
    wait_until(nodes.is_done)
    wait_until(lambda: taken(nodes) == 0)
