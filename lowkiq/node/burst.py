"""BurstEnd: when a node that runs with `burst` is done: nothing is due or in flight in any queue of the app."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from redis.exceptions import RedisError

from lowkiq import clock
from lowkiq.admin.metrics import ShardMetrics, read_shards
from lowkiq.node.shard_handler import ShardHandler
from lowkiq.queue.call import Caller

if TYPE_CHECKING:
    from lowkiq.app import Lowkiq


class BurstEnd:
    """Looks at all shards, since a job may push to a shard of another node."""

    def __init__(self, app: Lowkiq, caller: Caller, handlers: Sequence[ShardHandler]) -> None:
        self._caller = caller
        self._shards = [
            shard for worker in app.workers.values() for shard in app.shards(worker.queue_name, worker.shards_count)
        ]
        self._ours = {(handler.shard.queue, handler.shard.index) for handler in handlers}
        self._last_quiet: list[int] | None = None
        #: After this, a shard that is not ours and that nobody owns is not waited for: its node isn't there.
        self._others_until = clock.monotonic() + app.settings.lease_ttl

    def is_reached(self) -> bool:
        """Whether two looks in a row saw nothing to do and nothing done between them: one look is not atomic."""
        try:
            metrics = read_shards(self._caller, self._shards)
        except RedisError:
            return False
        if any(self._has_work(shard) for shard in metrics):
            self._last_quiet = None
            return False
        done = [shard.pushed + shard.processed + shard.failed for shard in metrics]
        was_quiet, self._last_quiet = self._last_quiet == done, done
        return was_quiet

    def _has_work(self, shard: ShardMetrics) -> bool:
        if not shard.busy and (shard.due_in is None or shard.due_in > 0):
            return False
        if (shard.queue, shard.shard) in self._ours or shard.lease_rest > 0:
            return True
        return clock.monotonic() < self._others_until
