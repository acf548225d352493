"""Queues that are late only where a node is away are told with that node; never any other."""

from __future__ import annotations

from typing import Any

import msgspec

from lowkiq.admin.alerts.alert import Alert, Thresholds
from lowkiq.admin.beats.health import NodeHealth
from lowkiq.admin.metrics import ShardMetrics
from tests.admin.alerts.test_list import AT, busy, listed, node, shard

BUSY = busy(1.0)
LOST = {"owner": "gone:1:x", "due_in": -157.0, "length": 3}


def stand_in(*shards: int, **facts: Any) -> NodeHealth:
    """The node that is left of two, with shards of the other, and no idle thread."""
    return node(number_of_nodes=2, threads=[BUSY], fostered={"q": [*shards]}, **facts)


def fostered(number: int, **facts: Any) -> ShardMetrics:
    return shard(**{"shard": number, "due_in": -157.0, "length": 3} | facts)


def found(*nodes: NodeHealth, shards: list[ShardMetrics], noted: dict[str, float], **facts: Any) -> list[Alert]:
    return listed(*nodes, shards=tuple(shards), noted=noted, **facts)


MISSING = {"missing": AT - 400}


def test_late_where_a_missing_node_was_is_told_with_it() -> None:
    # The stand-in has no thread for it; shard 2 is nobody's; shard 3 is of one that has died with its lease.
    rows = [shard(), fostered(1), shard(shard=2, lease_rest=0.0, **LOST), shard(shard=3, **LOST)]
    told = found(stand_in(1), shards=rows, noted=MISSING)
    assert [alert.kind for alert in told] == ["missing", "unowned"]
    assert told[0].says.endswith("; 1 queue is 2 min 37 s late with it: q")
    assert told[0].queues == ("q",) and told[0].is_about("q") and not told[0].is_about("other")
    many = [msgspec.structs.replace(fostered(1), queue=f"q{n}") for n in range(5)]
    of_all = node(number_of_nodes=2, threads=[BUSY], queues=None, fostered={f"q{n}": [1] for n in range(5)})
    (alert,) = found(of_all, shards=many, noted=MISSING)
    assert alert.says.endswith("; 5 queues are up to 2 min 37 s late with it: q0, q1, q2 and 2 more")
    assert len(alert.queues) == 5


def test_what_may_have_another_cause_keeps_its_own_alert() -> None:
    idle = stand_in(1)
    idle = msgspec.structs.replace(idle, threads=[node().threads[0], BUSY])
    other = node(node="far:2:y", host="far", node_number=2, number_of_nodes=3, threads=[BUSY], fostered={"q": [1]})
    cases: dict[str, list[Alert]] = {
        "a shard that is not the node's": found(
            stand_in(1), shards=[fostered(0), fostered(1)], noted=MISSING
        ),
        "a stand-in with an idle thread": found(idle, shards=[fostered(1, busy=1)], noted=MISSING),
        "late before the node was away": found(
            stand_in(1), shards=[fostered(1)], noted=MISSING | {"late queue:q": AT - 401}
        ),
        "nobody knows since when": found(stand_in(1), shards=[fostered(1)], noted={}),
        "a node of other queues": found(
            node(queues=["other"], number_of_nodes=2), node(node="far:2:y", threads=[BUSY]),
            shards=[fostered(0, owner="far:2:y")], noted={"missing:other": AT - 400, "missing": AT - 400},
        ),
        "a holder of another group": found(
            node(queues=["other"], number_of_nodes=2), msgspec.structs.replace(other, number_of_nodes=1, node_number=0),
            shards=[fostered(1, owner="far:2:y")], noted={"missing:other": AT - 400},
        ),
    }  # fmt: skip
    for case, told in cases.items():
        assert [alert.kind for alert in told] == ["missing", "late queue"], case
        assert not any(alert.queues for alert in told), case


def test_a_node_that_keeps_dying_or_is_not_heard_of_stands_for_queues_that_it_has() -> None:
    notice = "crash loop: node 1/2 keeps dying since 12:03 UTC, 5 times by now: it was killed; see its log"
    noted = {f"crash loop:host:{notice[12:].partition(' since ')[0]}": AT - 400}
    living = node(number_of_nodes=2, notices=[notice])
    dying = node(node="host:9:z", node_number=1, number_of_nodes=2, notices=[notice])
    rows = [shard(), fostered(1, owner="host:9:z")]
    (alert,) = found(living, dying, shards=rows, noted=noted)
    assert (alert.kind, alert.queues) == ("crash loop", ("q",))
    told = found(living, dying, shards=[fostered(0), *rows], noted=noted)
    assert [alert.kind for alert in told] == ["crash loop", "late queue"], "its own jobs are late, too"
    limits = Thresholds(lag=2.0)
    frozen = msgspec.structs.replace(dying, beat_age=20.0, notices=[])
    rows = [shard(), fostered(1, owner="host:9:z", due_in=-12.0)]
    (alert,) = found(node(number_of_nodes=2), frozen, shards=rows, noted={}, thresholds=limits)
    assert (alert.kind, alert.queues) == ("late", ("q",))


def test_a_doubled_number_is_no_cause_of_a_late_queue() -> None:
    """The one that has the shards works; a number that is missed on account of it is an alert of its own."""
    second = node(node="far:2:x", host="far", pid=2, supervisor_pid=8, owned={})
    told = found(node(threads=[BUSY]), second, shards=[fostered(0)], noted={"doubled:0:far,host": AT - 400})
    assert sorted(alert.kind for alert in told) == ["doubled", "late queue"]
