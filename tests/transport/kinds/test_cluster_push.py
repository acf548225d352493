"""Pushes to a cluster that does not answer: they wait for all its servers together no longer than for one."""

from __future__ import annotations

import asyncio
import time

import pytest

from lowkiq import Lowkiq, PushFailed
from tests.transport.kinds.cluster import RedisCluster

pytestmark = pytest.mark.long

TIMEOUT, SPARE = 1.0, 8.0


@pytest.mark.parametrize("is_awaited", [False, True])
def test_a_stopped_cluster_costs_no_more_than_the_timeout(is_awaited: bool) -> None:
    jobs = [{"id": number} for number in range(100)]
    with RedisCluster(3, 0) as cluster:
        app = Lowkiq(redis_url=cluster.url, push_timeout=TIMEOUT)
        worker = app.worker(queue_name="q", shards_count=12)(lambda batch: None)

        def push():
            return asyncio.run(worker.aperform_async(jobs)) if is_awaited else worker.perform_async(jobs)

        assert sum(push()) == 100
        for member in cluster.members:
            member.pause()
        for _ in range(2):
            began = time.monotonic()
            with pytest.raises(PushFailed, match="does not answer"):
                push()
            assert time.monotonic() - began < TIMEOUT + SPARE
        for member in cluster.members:
            member.resume()
        assert sum(push()) == 100
        app.close()
