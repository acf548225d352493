"""
LeaseKeeper: one thread that acquires and renews the leases of all the node's shards, and settles outcomes whose
thread is inside a long job.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import structlog
from redis.exceptions import RedisError

from lowkiq import clock
from lowkiq.node.outage import Outage
from lowkiq.node.shard_handler import Settle, ShardHandler, refused
from lowkiq.queue.call import Caller, chunked, raise_first
from lowkiq.queue.shard import LOST, WANTED, Held, Owned, Settled, renew

if TYPE_CHECKING:
    from lowkiq.node.worker_thread import WorkerThread
    from lowkiq.settings import Settings

logger = structlog.get_logger("lowkiq")

#: Renewals in a lease's time: two of three may be lost.
RENEWALS_A_TTL = 3
#: Seconds between tries for a shard that another node holds. It may be given back at any moment.
ACQUIRE_INTERVAL = 1.0
#: Shards that are tried for in one round trip.
ACQUIRES_AT_ONCE = 200


class LeaseKeeper(threading.Thread):
    """
    Args:
        threads: each shard handler with the thread that runs it, which is told when the shard is ours.
        dead_nodes: names of nodes known to be dead: their shards are taken at once.
        fatal: called with an error that must stop the node.
    """

    def __init__(
        self,
        threads: Mapping[ShardHandler, WorkerThread],
        caller: Caller,
        node: str,
        settings: Settings,
        dead_nodes: Sequence[str],
        fatal: Callable[[BaseException], None],
        outage: Outage,
    ) -> None:
        super().__init__(name="lowkiq-lease-keeper", daemon=True)
        self._threads = threads
        self._workers = list(dict.fromkeys(threads.values()))
        self._caller = caller
        self._node = node
        self._settings = settings
        self._dead_nodes = dead_nodes
        self._fatal = fatal
        self._wake = threading.Event()
        self._is_stopping = self._is_draining = False
        self._asked: deque[ShardHandler] = deque()
        self._wanted: list[ShardHandler] = []
        self._renew_at = self._acquire_at = 0.0
        self._outage = outage
        #: Set once every shard has been tried for.
        self.has_tried = threading.Event()

    def foster(self, handler: ShardHandler) -> None:
        """Asks to stand in for the node whose part the shard is."""
        self._asked.append(handler)
        self._wake.set()

    def drain(self) -> None:
        """Acquire no more; keep what is still worked on."""
        self._is_draining = True

    def stop(self) -> None:
        self._is_stopping = True
        self._wake.set()

    def run(self) -> None:
        try:
            while not self._is_stopping:
                self._wake.clear()
                self._round()
                self._wake.wait(self._until_next_round())
        except BaseException as error:  # noqa: BLE001 (without renewals the node loses its shards: better to stop)
            self._fatal(error)

    def _round(self) -> None:
        now = clock.monotonic()
        try:
            if now >= self._renew_at:
                self._renew_at = now + self._settings.lease_ttl / RENEWALS_A_TTL
                self._renew(now)
            if now >= self._acquire_at:
                self._acquire_at = now + ACQUIRE_INTERVAL * random.uniform(0.8, 1.2)  # noqa: S311 (spreads load)
                if not self._is_draining:
                    self._acquire([handler for handler in self._threads if not handler.is_foster], now)
                    self.has_tried.set()
            self._take_in(now)
            self._give_back()
            self.settle_late(self._settings.claim_window / 2)
        except RedisError as error:
            # The leases are tried again well before they run out.
            self._outage.met(error)
            self._renew_at = min(self._renew_at, now + ACQUIRE_INTERVAL)

    def _until_next_round(self) -> float:
        """Half a claim window while jobs run, so that an outcome waits at most one window; else until there is work."""
        if any(thread.in_hand for thread in self._workers):
            return self._settings.claim_window / 2
        next_at = min(self._renew_at, self._acquire_at)
        # A thread that starts a long job doesn't wake us: it would cost every short one. So look now and then.
        return max(min(next_at - clock.monotonic(), self._settings.claim_window), 0.001)

    def _renew(self, now: float) -> None:
        owned = [(handler, handler.epoch) for handler in self._threads if handler.epoch is not None]
        groups = list(chunked(owned, self._caller.shards_a_call))
        calls = [
            renew(
                [handler.shard for handler, _ in group],
                self._node,
                [epoch for _, epoch in group if epoch],
                self._settings.lease_ttl,
            )
            for group in groups
        ]
        results = self._caller.run_all(calls)
        for group, kept in zip(groups, results, strict=True):
            if not isinstance(kept, Exception):
                for (handler, epoch), reply in zip(group, kept, strict=True):
                    self._note_renewed(handler, epoch, reply, now)
        self._wanted = [handler for handler, _ in owned if handler.is_wanted]
        # Only now: of a cluster, one server may be away while the others have kept their leases.
        raise_first(results)
        if owned:
            self._outage.over()

    def _note_renewed(self, handler: ShardHandler, epoch: str, reply: int, asked_at: float) -> None:
        if reply != LOST:
            was_late = not handler.holds(epoch)
            handler.renewed(asked_at)
            handler.is_wanted = handler.is_foster and reply == WANTED
            if was_late:
                self._threads[handler].hear(handler, asked_at)
        elif handler.lost(epoch):
            logger.warning("lease_lost", queue=handler.shard.queue, shard=handler.shard.index, epoch=epoch)

    def _take_in(self, now: float) -> None:
        """Stands in for nodes that are away, as far as it was asked to."""
        asked = [self._asked.popleft() for _ in range(len(self._asked))]
        if not self._is_draining:
            self._acquire(asked, now)

    def _give_back(self) -> None:
        """Returns shards to the nodes whose part they are: each as soon as no claim of it is in hand."""
        calls = [(handler, call) for handler in self._wanted if (call := handler.give_back_call())]
        self._wanted = [handler for handler in self._wanted if handler.epoch is not None]
        for (handler, _), result in zip(calls, self._caller.run_all([call for _, call in calls]), strict=True):
            if isinstance(result, RedisError):
                raise result
            logger.info("foster_ended", queue=handler.shard.queue, shard=handler.shard.index)

    def _acquire(self, handlers: Sequence[ShardHandler], now: float) -> None:
        wanted = [handler for handler in handlers if handler.epoch is None and not handler.is_busy]
        for group in chunked(wanted, ACQUIRES_AT_ONCE):
            results = self._caller.run_all([handler.acquire_call(self._dead_nodes) for handler in group])
            for handler, result in zip(group, results, strict=True):
                if not isinstance(result, RedisError):
                    self._note_acquired(handler, result, now)
            raise_first([result for result in results if isinstance(result, RedisError)])
            self._outage.over()

    def _note_acquired(self, handler: ShardHandler, result: Any, asked_at: float) -> None:
        shard = handler.shard
        if isinstance(result, Owned):
            handler.acquired(result, asked_at)
            if handler.is_foster:
                logger.info("foster", queue=shard.queue, shard=shard.index)
            if result.restored or result.buried:
                logger.warning(
                    "claim_restored",
                    queue=shard.queue, shard=shard.index, restored=result.restored, buried=result.buried,
                )  # fmt: skip
            if result.due_in is not None:
                self._threads[handler].hear(handler, clock.monotonic() + result.due_in)
        elif isinstance(result, Held):
            if handler.holder != result.holder and not handler.is_foster:
                handler.holder = result.holder
                logger.info(
                    "standing_by",
                    queue=shard.queue, shard=shard.index, waits_for=result.holder, lease_ends_in=round(result.rest, 1),
                )  # fmt: skip
        else:
            raise result

    def settle_late(self, age: float) -> None:
        """
        Settles what has waited for `age` seconds because its thread is inside a job. If that takes long, the thread's
        other claims end, so that another thread can run their shards.
        """
        for thread in self._workers:
            if not thread.in_hand or not thread.settling.acquire(blocking=False):
                continue
            try:
                now = clock.monotonic()
                is_stuck = thread.is_inside(now, self._settings.claim_window)
                for handler in thread.in_hand:
                    if is_stuck and not handler.running:
                        self._take_back(thread, handler)
                    elif handler.waits_since is not None and now - handler.waits_since >= age:
                        self._settle(thread, handler, handler.settle_call(last=False))
            finally:
                thread.settling.release()

    def _take_back(self, thread: WorkerThread, handler: ShardHandler) -> None:
        settle = handler.take_back_call()
        if settle:
            due_in = self._settle(thread, handler, settle)
            handler.finished()
            handler.leave(thread)
            if due_in is not None:
                thread.hear(handler, clock.monotonic() + due_in)

    def _settle(self, thread: WorkerThread, handler: ShardHandler, settle: Settle | None) -> float | None:
        """Returns the seconds until the shard's oldest job is due."""
        if settle is None:
            return None
        (result,) = self._caller.run_all([settle.call])
        if isinstance(result, Settled):
            handler.settled(settle)
            thread.count(result)
            return result.due_in
        if not refused(handler, settle.epoch, result):
            raise result
        return None
