"""Pushes to several servers that do not answer: they wait for all together no longer than for one."""

from __future__ import annotations

import asyncio
import time

import pytest

from lowkiq import Lowkiq, PushFailed
from tests.support import until_pushed
from tests.transport.kinds.cluster import RedisCluster
from tests.transport.kinds.sentinel import RedisSentinel

pytestmark = pytest.mark.long

TIMEOUT, SPARE = 1.0, 8.0


@pytest.mark.parametrize("kind", [lambda: RedisCluster(3, 0), RedisSentinel], ids=["cluster", "sentinel"])
@pytest.mark.parametrize("is_awaited", [False, True])
def test_nor_do_servers_that_were_stopped_before_the_first_push(kind, is_awaited: bool) -> None:
    with kind() as servers:
        app = Lowkiq(redis_url=servers.url, push_timeout=TIMEOUT)
        worker = app.worker(queue_name="q", shards_count=12)(lambda batch: None)
        for member in servers._members():
            member.pause()
        for _ in range(2):
            began = time.monotonic()
            with pytest.raises(PushFailed, match="none of 1 payloads was sent"):
                if is_awaited:
                    asyncio.run(worker.aperform_async([{"id": 1}]))
                else:
                    worker.perform_async([{"id": 1}])
            assert time.monotonic() - began < TIMEOUT + SPARE / 4
        app.close()
        assert time.monotonic() - began < TIMEOUT + SPARE / 2
        for member in servers._members():
            member.resume()
        assert sum(until_pushed(lambda: worker.perform_async([{"id": 1}]))) == 1
        app.close()


@pytest.mark.parametrize("is_awaited", [False, True])
def test_a_stopped_cluster_costs_no_more_than_the_timeout(is_awaited: bool) -> None:
    jobs = [{"id": number} for number in range(100)]
    with RedisCluster(3, 0) as cluster:
        app = Lowkiq(redis_url=cluster.url, push_timeout=TIMEOUT)
        worker = app.worker(queue_name="q", shards_count=12)(lambda batch: None)

        def push():
            return asyncio.run(worker.aperform_async(jobs)) if is_awaited else worker.perform_async(jobs)

        assert sum(until_pushed(push)) == 100
        for member in cluster.members:
            member.pause()
        for _ in range(2):
            began = time.monotonic()
            with pytest.raises(PushFailed, match="does not answer"):
                push()
            assert time.monotonic() - began < TIMEOUT + SPARE
        for member in cluster.members:
            member.resume()
        assert sum(until_pushed(push)) == 100
        app.close()
