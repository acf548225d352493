"""Nodes that nobody has numbered: they share the shards, and go on sharing them as nodes come and go."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable

import pytest

from lowkiq.admin.metrics import read_shards
from tests.node.nodes import NodeProcess, Nodes, overlaps
from tests.support import wait_until

SHARDS = 7
IDS = [str(number) for number in range(70)]


@pytest.fixture
def nodes(make_nodes: Callable[..., Nodes]) -> Nodes:
    return make_nodes(shards_count=SHARDS)


def start(nodes: Nodes) -> NodeProcess:
    return nodes.start(lease_ttl=6, node={"is_elastic": True}).wait_ready()


def owners(nodes: Nodes) -> list[str | None]:
    return [shard.owner if shard.lease_rest else None for shard in read_shards(nodes.app.caller, nodes._shards())]


def shares(nodes: Nodes) -> list[int]:
    """How many shards each owner has."""
    return sorted(Counter(owner for owner in owners(nodes) if owner).values())


def push_to_all(nodes: Nodes, round: int) -> None:
    nodes.push(*({"id": id, "payload": {"round": round}, "score": round} for id in IDS))


def moved(before: list[str | None], after: list[str | None]) -> int:
    return sum(was != now for was, now in zip(before, after, strict=True))


def test_shares_follow_nodes_that_come_go_and_die_and_no_more_moves_than_must(nodes: Nodes) -> None:
    first = start(nodes)
    wait_until(lambda: shares(nodes) == [7])
    one = owners(nodes)
    second = start(nodes)
    wait_until(lambda: shares(nodes) == [3, 4])
    two = owners(nodes)
    assert moved(one, two) == 3
    push_to_all(nodes, 0)
    third = start(nodes)
    wait_until(lambda: shares(nodes) == [2, 2, 3])
    three = owners(nodes)
    assert moved(two, three) == 2
    wait_until(nodes.is_done)
    second.send(signal.SIGTERM)
    assert second.wait() == 0
    wait_until(lambda: shares(nodes) == [3, 4])
    assert moved(three, owners(nodes)) == Counter(three)[next(o for o in three if o and f":{second.pid}:" in o)]
    push_to_all(nodes, 1)
    third.kill()
    wait_until(lambda: shares(nodes) == [7], within=60)
    wait_until(nodes.is_done, within=60)
    assert overlaps(nodes.records("start", "end", "overlap"), dead={third.pid}) == []
    assert not first.logged("lease_lost")


def test_a_node_that_is_quiet_has_no_part(nodes: Nodes) -> None:
    start(nodes)
    second = start(nodes)
    wait_until(lambda: shares(nodes) == [3, 4])
    second.send(signal.SIGTSTP)
    wait_until(lambda: shares(nodes) == [7])
    assert second.is_running()


def test_beside_a_numbered_node_every_job_runs_once(nodes: Nodes) -> None:
    """Of an older version, or one that somebody pins: leases decide who runs what both take for theirs."""
    numbered = nodes.start(lease_ttl=6, node={"node_number": 0, "number_of_nodes": 2}).wait_ready()
    start(nodes)
    push_to_all(nodes, 0)
    wait_until(nodes.is_done, within=60)
    assert overlaps(nodes.records("start", "end", "overlap")) == []
    starts = [id for _, _, jobs, *_ in nodes.records("start") for id in jobs]
    assert sorted(starts) == sorted(IDS)
    assert numbered.is_running()
