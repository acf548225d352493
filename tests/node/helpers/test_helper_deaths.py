"""Deaths of helpers, which are failures of their batches and no more."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest

from tests.node.helpers.conftest import IsolatedNodes, all_gone, helpers_of, is_alive
from tests.support import wait_until


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        ({"null": 1}, "killed by SIGSEGV"),
        ({"signal": signal.SIGKILL}, "killed by SIGKILL"),
        ({"exit": 3}, "exited with status 3"),
        ({"exit": 0}, "exited with status 0"),
    ],
)
def test_a_helper_s_death_fails_its_batch_and_leaves_its_node_alone(
    isolated: Callable[..., IsolatedNodes], payload: Any, why: str
) -> None:
    nodes = isolated(kind="plain")
    node = nodes.start().wait_ready()
    nodes.push({"id": "a", "payload": payload})
    assert wait_until(lambda: [error for error in nodes.errors() if error]) == [f"ProcessDied: {why}"]
    (job,) = nodes.worker.queries.fetch(["a"])
    assert job.retry_count == 0
    nodes.push({"id": "b", "payload": {}})
    wait_until(lambda: nodes.ended("b"))
    node.send(signal.SIGTERM)
    assert node.wait() == 0
    assert nodes.crashes() == 0
