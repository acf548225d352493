"""Nodes that nobody has numbered: they share the shards, and go on sharing them as nodes come and go."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Callable

import pytest

from lowkiq.admin.metrics import read_shards
from lowkiq.admin.past.incidents import Incident, read_incidents
from lowkiq.queue import keys
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
    wait_until(lambda: shares(nodes) == [7])
    wait_until(nodes.is_done)
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
    wait_until(nodes.is_done)
    assert overlaps(nodes.records("start", "end", "overlap")) == []
    starts = [id for _, _, jobs, *_ in nodes.records("start") for id in jobs]
    assert sorted(starts) == sorted(IDS)
    assert numbered.is_running()


def test_old_nodes_with_numbers_beside_elastic_ones_are_safe_whoever_comes_goes_and_dies(nodes: Nodes) -> None:
    """A cluster that is half way from the one to the other: nothing is lost, out of order, or run by two at once."""
    old = [nodes.start(lease_ttl=6, node={"node_number": n, "number_of_nodes": 2}).wait_ready() for n in (0, 1)]
    first = start(nodes)
    push_to_all(nodes, 0)
    second = start(nodes)
    push_to_all(nodes, 1)
    old[0].kill()
    push_to_all(nodes, 2)
    second.kill()
    push_to_all(nodes, 3)
    wait_until(nodes.is_done)
    old[1].send(signal.SIGTERM)
    push_to_all(nodes, 4)
    assert old[1].wait() == 0
    wait_until(nodes.is_done)
    wait_until(lambda: shares(nodes) == [SHARDS])
    dead = {old[0].pid, second.pid}
    assert overlaps(nodes.records("start", "end", "overlap"), dead=dead) == []
    ended = Counter(id for _, _, jobs, *_ in nodes.records("end") for id in jobs)
    assert ended.keys() == {*IDS}
    rounds: dict[str, list[int]] = {id: [] for id in IDS}
    for _, _, jobs, *_ in nodes.records("end"):
        for id, payloads in jobs.items():
            rounds[id] += [payload["round"] for payload in payloads]
    for seen in rounds.values():
        # What a node had done when it was killed runs once more, before anything newer.
        assert seen == sorted(seen) and {*seen} == {*range(5)}
    assert nodes.metrics().morgue_length == 0
    assert first.is_running()


def moves(nodes: Nodes) -> list[Incident]:
    return read_incidents(nodes.app.caller, nodes.namespace, kind="moved")


def told(nodes: Nodes) -> list[int]:
    """How many shards each node had at the last look."""
    text = nodes.app.redis().get(keys.parts(nodes.namespace))
    parts = json.loads(text)["parts"].values() if text else ()
    return sorted(len(part["owned"].get("jobs", ())) for part in parts)


def alerts(nodes: Nodes) -> list[str]:
    return [alert.kind for alert in nodes.app.nodes().alerts if alert.kind != "Redis"]


def test_a_join_and_a_leave_are_an_incident_each_and_no_alert(nodes: Nodes) -> None:
    start(nodes)
    wait_until(lambda: told(nodes) == [7])
    second = start(nodes)
    (joined,) = wait_until(lambda: moves(nodes))
    assert "joined: 3 shards moved from node 0" in joined.says
    second.send(signal.SIGTERM)
    assert second.wait() == 0
    left, _ = wait_until(lambda: len(found := moves(nodes)) > 1 and found)
    assert "left: 3 shards moved from node 0" in left.says and left.severity == "note"
    assert alerts(nodes) == []


@pytest.mark.long
def test_a_node_that_vanishes_is_a_warning_until_somebody_has_it_forgotten(nodes: Nodes) -> None:
    first, second = start(nodes), start(nodes)
    wait_until(lambda: told(nodes) == [3, 4])
    second.kill()
    (gone,) = wait_until(lambda: [move for move in moves(nodes) if move.severity == "warn"])
    assert "went away without saying goodbye" in gone.says
    wait_until(lambda: alerts(nodes) == ["vanished"])
    wait_until(lambda: read_incidents(nodes.app.caller, nodes.namespace, kind="vanished"))
    assert first.is_running()
