"""Queues for the tests of pages: a shard that is driven by hand, in a queue that Redis knows."""

from __future__ import annotations

from lowkiq import Lowkiq
from lowkiq.queue import keys
from tests.queue.shard_driver import ShardDriver


def open_queue(app: Lowkiq, queue: str = "q", shards_count: int = 1) -> ShardDriver:
    """A queue as its first push makes it; the driver is of its shard 0."""
    app.redis().hset(keys.queues(app.settings.namespace), queue, shards_count)
    return ShardDriver(app, queue, 0, shards_count)
