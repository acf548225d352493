"""Drain: how a node gives back its shards: the idle ones at once, the others as their jobs end."""

from __future__ import annotations

from collections.abc import Sequence

import structlog
from redis.exceptions import RedisError

from lowkiq.node.lease_keeper import LeaseKeeper
from lowkiq.node.outage import Outage
from lowkiq.node.shard_handler import ShardHandler
from lowkiq.node.worker_thread import WorkerThread
from lowkiq.queue.call import SHARDS_A_CALL, Caller, chunked

logger = structlog.get_logger("lowkiq")

#: Seconds to wait for a thread that has nothing left to do.
JOIN = 1.0


class Drain:
    """Used by the main thread. The lease keeper goes on renewing what is still worked on."""

    def __init__(self, workers: Sequence[WorkerThread], keeper: LeaseKeeper, caller: Caller, outage: Outage) -> None:
        self._workers = workers
        self._keeper = keeper
        self._caller = caller
        self._outage = outage

    def begin(self) -> None:
        """No thread claims any more."""
        self._keeper.drain()
        for thread in self._workers:
            thread.stop()

    def advance(self) -> bool:
        """
        Keeps jobs in hand from starting, and releases the shards that nothing runs on any more. Returns whether there
        are others.
        """
        for thread in self._workers:
            for handler in thread.in_hand:
                handler.give_back_pending()
        try:
            self._release([handler for handler in self._owned() if not self._is_worked_on(handler)])
            self._outage.over()
        except RedisError as error:
            self._outage.met(error, "release_failed")
        return any(thread.is_alive() for thread in self._workers) or bool(self._owned())

    def end(self) -> int:
        """
        Stops the keeper. Shards that could not be released are marked, not given away: their leases run out, and
        whoever comes next restores the claim without counting a crash. Returns on how many of them there are jobs that
        have run, or still run, and are not settled.
        """
        left = self._owned()
        busy = [handler for handler in left if handler.is_busy]
        self._keeper.stop()
        self._keeper.join(JOIN)
        for handler in busy:
            logger.warning(
                "abandoned", queue=handler.shard.queue, shard=handler.shard.index,
                ids=[job.id for job in handler.running][:10],
            )  # fmt: skip
        if len(left) > len(busy):
            logger.warning(
                "not_released", shards=len(left) - len(busy), advice="others take them when their leases end"
            )
        calls = [call for handler in left if (call := handler.abandon_call())]
        try:
            self._caller.run_all(calls)
        except RedisError as error:
            logger.warning("abandon_failed", error=f"{type(error).__name__}: {error}"[:300])
        return len(busy)

    def _owned(self) -> list[ShardHandler]:
        return [handler for thread in self._workers for handler in thread.handlers if handler.epoch is not None]

    def _is_worked_on(self, handler: ShardHandler) -> bool:
        return any(thread.may_touch(handler) for thread in self._workers)

    def _release(self, handlers: Sequence[ShardHandler]) -> None:
        for group in chunked(handlers, SHARDS_A_CALL):
            # One that was lost meanwhile has nothing to release.
            calls = [(handler, epoch, call) for handler in group for epoch, call in handler.release_calls()]
            results = self._caller.run_all([call for _, _, call in calls])
            for (handler, epoch, _), result in zip(calls, results, strict=True):
                if isinstance(result, RedisError):
                    raise result
                # Released, or lost already: it is not ours any more.
                handler.lost(epoch)
