"""A queue of three shards, as most tests of admin use it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lowkiq import Lowkiq, Worker
from lowkiq.job import shard_of
from tests.queue.shard_driver import ShardDriver

SHARDS = 3


@pytest.fixture
def work(app: Lowkiq) -> type[Worker]:
    return app.worker(queue_name="q", shards_count=SHARDS)(lambda _: None)


@pytest.fixture
def shards(app: Lowkiq) -> list[ShardDriver]:
    return [ShardDriver(app, index=index, shards_count=SHARDS) for index in range(SHARDS)]


@pytest.fixture
def shard_with(shards: list[ShardDriver]) -> Callable[[str], ShardDriver]:
    """Gives the shard of an id."""

    def shard_with(id: str) -> ShardDriver:
        return shards[shard_of(id.encode(), SHARDS)]

    return shard_with
