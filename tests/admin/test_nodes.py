"""What heartbeats say of all nodes: which numbers are doubled, and what supervisors report."""

from __future__ import annotations

from typing import Any

from lowkiq.admin.alerts import alerts_of
from lowkiq.admin.nodes import NodeHealth, Nodes, judge


def node(**facts: Any) -> NodeHealth:
    known: dict[str, Any] = {
        "node": "host:1:abc", "boot_id": "b", "host": "host", "pid": 1, "supervisor_pid": 7, "node_number": 0,
        "number_of_nodes": 1, "slot": 0, "state": "ready", "started_at": 1.0, "beat_at": 2.0, "version": "1",
        "owned": {}, "waited_for": {}, "threads": [], "processed": 0, "failed": 0, "rss": 1, "cpu_percent": 0.0,
        "redis_round_trip": None, "restarts": 0, "last_exit": None,
    }  # fmt: skip
    return NodeHealth(**known | facts)


def judged(*nodes: NodeHealth) -> Nodes:
    return judge(list(nodes), [], [])


def test_a_process_and_its_successor_are_one_node() -> None:
    pair = node(), node(node="host:2:def", pid=2, state="starting")
    assert judged(*pair).doubled == []
    assert not alerts_of(judged(*pair))


def test_another_supervisor_s_node_of_that_number_is_another_node() -> None:
    others: list[dict[str, Any]] = [{"host": "far"}, {"supervisor_pid": 8}, {"supervisor_pid": None, "slot": None}]
    for other in others:
        found = judged(node(), node(node="host:2:def", pid=2), node(node="host:3:ghi", pid=3, **other))
        assert found.doubled == [0]
        (alert,) = alerts_of(found)
        assert alert.says.startswith("2 nodes have the number 0, on ")


def test_a_notice_that_all_nodes_of_a_supervisor_carry_is_one_alert_and_not_trusted() -> None:
    first = node(notices=["node 1/2 can't start since 12:03 UTC", "evil\x1b[31m\u202e" + "x" * 1000])
    second = node(node="host:2:def", slot=1, node_number=1, notices=["node 1/2 can't start since 12:03 UTC"])
    found = alerts_of(judged(first, second))
    assert [alert.kind for alert in found] == ["supervisor"] * 2
    told = {alert.says for alert in found}
    assert "On host, node 1/2 can't start since 12:03 UTC" in told
    assert all("\x1b" not in says and "\u202e" not in says and len(says) < 400 for says in told)
    assert len(alerts_of(judged(node(notices=[str(number) for number in range(1000)])))) <= 10
