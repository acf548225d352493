"""A job does not begin in a helper once its lease is lost, whatever the helper has taken its time for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.node.helpers.conftest import IsolatedNodes
from tests.support import wait_until


@pytest.mark.parametrize("payload", [{}, {"slow_load": 1}], ids=["helper", "payload"])
def test_a_job_whose_lease_is_lost_meanwhile_starts_under_the_next_one_alone(
    isolated: Callable[..., IsolatedNodes], payload: dict[str, Any]
) -> None:
    nodes = isolated(slow_init=0 if payload else 3)
    nodes.push({"id": "a", "payload": payload})
    nodes.start(lease_ttl=0.5).wait_ready()
    (shard,) = nodes.app.shards("jobs", 1)
    redis = nodes.app.redis()
    wait_until(lambda: redis.exists(f"{shard.prefix}claim", f"{shard.prefix}asides"))
    redis.hset(f"{shard.prefix}owner", "node", "another")  # which is gone by the time that its lease ends
    wait_until(lambda: nodes.ended("a"))
    nodes.until_done()
    assert [row[2] for row in nodes.records("start")] == [["a"]]
