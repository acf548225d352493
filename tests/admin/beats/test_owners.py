"""Owners: each reason for which a shard is where it is, as heartbeats, leases and placements tell."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from lowkiq import Lowkiq
from lowkiq.admin.beats.health import NodeHealth
from lowkiq.admin.beats.members import Members, Placement
from lowkiq.admin.beats.owners import Owner, owners_of
from lowkiq.cli.commands import cli
from tests.admin.alerts.test_list import node, shard
from tests.web.conftest import open_queue
from tests.web.node_health import tell_health

A = "host:1:abc"


def one(*nodes: NodeHealth, placements: dict[tuple[str, int], Placement] | None = None, **facts: Any) -> Owner:
    (found,) = owners_of(nodes, [shard(**facts)], placements or {}, 1_000.0)
    return found


def sharing(**facts: Any) -> NodeHealth:
    return node(**{"is_elastic": True} | facts)


def waiting(**facts: Any) -> NodeHealth:
    known: dict[str, Any] = {"node": "far:2:x", "host": "far", "owned": {}, "waited_for": {A: {"q": [0]}}}
    return sharing(**known | facts)


FOSTERED = {"fostered": {"q": [0]}}
PLACED = {("q", 0): Placement(A, 880.0, 0.93)}

#: Why → the nodes, facts of the shard, placements, the target's host, and what is said.
TABLE: dict[str, tuple[list[NodeHealth], dict[str, Any], Any, str | None, str]] = {
    "share": ([sharing()], {}, None, "host", "its share"),
    "load": ([sharing()], {}, PLACED, "host", "moved here to balance, 2 min ago"),
    "number": ([node()], {}, None, "host", "by its number, 0 of 1, or a build_splitter"),
    "handover": ([sharing(**FOSTERED), waiting()], {"busy": 2}, None, "far",
                 "it goes to node 0 on far when its jobs in hand end"),
    "drain": ([sharing(state="draining"), waiting()], {}, None, "far",
              "its node ends: it goes to node 0 on far between two claims"),
    "lease": ([sharing(beat_age=14.0), waiting()], {"lease_rest": 3.0}, None, "far",
              "its node is not heard of; node 0 on far takes it when the lease ends, in 3.0 s"),
    "stands in": ([sharing(**FOSTERED)], {}, None, None, "stands in, until the node whose part it is asks for it"),
    "free": ([waiting()], {"lease_rest": 0.0}, None, "far", "free: node 0 on far takes it"),
    "nobody": ([sharing(queues=["another"], owned={})], {"lease_rest": 0.0}, None, None,
               "no node that is there runs this queue"),
}  # fmt: skip


@pytest.mark.parametrize("why", TABLE)
def test_a_shard_is_where_it_is_for_a_reason(why: str) -> None:
    nodes, facts, placements, target, says = TABLE[why]
    found = one(*nodes, placements=placements, **facts)
    assert (found.why, found.says) == (why, says)
    assert (found.target and found.target.host) == target
    assert (found.owner is None) is (why in {"free", "nobody"})


def test_a_node_that_is_gone_has_it_until_its_lease_ends() -> None:
    found = one(waiting(), owner="gone:1:x")
    assert found.why == "lease" and str(found.owner) == "gone:1:x"


def test_the_newest_heartbeat_says_whose_part_it_is() -> None:
    found = one(sharing(beat_age=4.0), waiting(beat_age=1.0))
    assert (found.why, found.target and found.target.host) == ("handover", "far")
    found = one(sharing(beat_age=1.0), waiting(beat_age=4.0))
    assert (found.why, found.target and found.target.host) == ("share", "host")


def test_a_leaver_and_a_late_node_are_no_targets() -> None:
    for state in ({"state": "retiring"}, {"beat_age": 14.0}):
        assert one(sharing(), waiting(**state)).why == "share"


def test_the_command_line_tells_it(app: Lowkiq, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOWKIQ_REDIS_URL", app.settings.redis_url)
    monkeypatch.setenv("LOWKIQ_NAMESPACE", app.settings.namespace)
    open_queue(app).lease(A, ttl=300)
    tell_health(app, is_elastic=True, queues=["q"], waited_for={}, owned={"q": [0]})
    Members(app.caller, app.settings.namespace, A).give({("q", 0): Placement(A, 1.0, 0.5)}, [])
    told = CliRunner().invoke(cli, ["owners", "q", "--json"])
    rows = msgspec.json.decode(told.output, type=list[Owner])
    assert rows[0].owner and (rows[0].owner.node, rows[0].why) == (A, "load")
    table = CliRunner().invoke(cli, ["owners"])
    assert table.exit_code == 0 and "node 0 on host" in table.output and "to balance" in table.output
    unknown = CliRunner().invoke(cli, ["owners", "no"])
    assert unknown.exit_code == 2 and "no" in unknown.output


def test_a_shard_of_a_queue_that_was_resharded_has_its_own_reason() -> None:
    """Loads and placements are of a generation; what nodes say of their part is of the newest one."""
    placed = {("q@2", 0): Placement(A, 880.0, 0.93)}
    rows = [shard(generation=1), shard(generation=2)]
    old, new = owners_of([sharing()], rows, placed, 1_000.0)
    assert (new.why, new.says) == ("load", "moved here to balance, 2 min ago")
    assert (old.why, old.target, old.says) == ("handover", None, "its jobs are being moved to other shards")
    (alone,) = owners_of([sharing()], rows[1:], {("q", 0): placed["q@2", 0]}, 1_000.0)
    assert alone.why == "share", "a placement of before is over"
