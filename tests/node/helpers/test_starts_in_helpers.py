"""A job does not begin in a helper once its lease is lost, whatever the helper has taken its time for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.node.helpers.conftest import IsolatedNodes
from tests.support import wait_until


@pytest.mark.parametrize("gate", ["init", "load"])
def test_a_job_whose_lease_is_lost_meanwhile_starts_under_the_next_one_alone(
    isolated: Callable[..., IsolatedNodes], gate: str
) -> None:
    nodes = isolated(gate_of_init=gate == "init", loads=True)
    nodes.push({"id": "a", "payload": {"gate_of_load": 1} if gate == "load" else {}})
    node = nodes.start(lease_ttl=0.5)
    wait_until(lambda: nodes.is_at(gate), "a helper is at the gate")
    (shard,) = nodes.app.shards("jobs", 1)
    redis = nodes.app.redis()
    wait_until(lambda: redis.exists(f"{shard.prefix}claim", f"{shard.prefix}asides"), "claimed")
    redis.hset(f"{shard.prefix}owner", "node", "another")  # which is gone by the time that its lease ends
    wait_until(lambda: node.logged("lease_lost"), "the node knows")
    nodes.open(gate)
    wait_until(lambda: nodes.ended("a"))
    nodes.until_done()
    assert [row[2] for row in nodes.records("start")] == [["a"]]
