"""Which nodes count their numbers together, and what is wrong in each group."""

from __future__ import annotations

from typing import Any

import pytest

from lowkiq import Lowkiq
from tests.web.node_health import tell_health


def tell(app: Lowkiq, *nodes: dict[str, Any]) -> None:
    for number, node in enumerate(nodes):
        tell_health(app, **({"node": f"node{number}", "number_of_nodes": 1, "waited_for": {}} | node))


@pytest.mark.parametrize(
    ("queues", "doubled"),
    [
        ((["a"], ["b"]), []),
        ((["a", "b"], ["b"]), [0]),
        ((["a"], ["b"], ["a", "b"]), [0]),
        ((None, ["b"]), [0]),
        ((["a"], None), [0]),
    ],
)
def test_nodes_that_share_a_queue_share_the_numbers(
    app: Lowkiq, queues: tuple[list[str] | None, ...], doubled: list[int]
) -> None:
    tell(app, *({"queues": some} for some in queues))
    assert app.nodes().doubled == doubled


def test_numbers_are_missing_by_group(app: Lowkiq) -> None:
    tell(
        app,
        {"queues": ["mail", "post"], "number_of_nodes": 2},
        {"queues": ["video"], "number_of_nodes": 3},
        {"queues": ["video"], "number_of_nodes": 3, "node_number": 1},
    )
    assert app.nodes().missing == [1, 2]
    assert [alert.says.partition(":")[0] for alert in app.nodes().alerts if alert.kind == "missing"] == [
        "Node 1 of 2 for mail and post is missing",
        "Node 2 of 3 for video is missing",
    ]


def test_nodes_of_one_supervisor_are_not_doubled_nor_is_one_that_leaves(app: Lowkiq) -> None:
    """One is to replace the other."""
    tell(app, {"supervisor_pid": 7}, {"supervisor_pid": 7}, {"state": "draining"}, {"state": "retiring"})
    assert app.nodes().doubled == []
    tell_health(app, node="other", supervisor_pid=8)
    assert app.nodes().doubled == [0]


def test_nodes_that_share_by_themselves_are_neither_missing_nor_doubled(app: Lowkiq) -> None:
    tell(app, *({"is_elastic": True, "number_of_nodes": 2} for _ in range(3)))
    assert (app.nodes().missing, app.nodes().doubled, app.nodes().groups[0].size) == ([], [], 0)
