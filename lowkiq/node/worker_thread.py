"""WorkerThread: picks a shard, runs it, and settles it together with the next claim in one round trip."""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from redis.exceptions import RedisError

from lowkiq import clock
from lowkiq.errors import StaleClaim, Unsettled
from lowkiq.node.bells import LocalBell
from lowkiq.node.shard_handler import Settle, ShardHandler, refused
from lowkiq.node.trouble import Trouble
from lowkiq.store.call import Call, Caller, chunked, raise_first
from lowkiq.store.claims import Claim
from lowkiq.store.shard import Settled, peek

if TYPE_CHECKING:
    from lowkiq.node.bells import Bell
    from lowkiq.node.schedulers import Scheduler
    from lowkiq.store.bell import Heard

#: Seconds between tries while Redis is in trouble: it grows to the second figure, with jitter.
RETRY_FROM, RETRY_TO = 0.05, 1.0


class WorkerThread(threading.Thread):
    """
    Owns a group of shard handlers. Others talk to it through `hear` and `stop` only.

    While a batch takes long, the other shards of its thread wait. Threads that poll meanwhile find their jobs, and run
    them: a shard keeps its own thread, which is rung, but has another from one claim to the next.

    Args:
        fatal: called with an error that must stop the node.
    """

    def __init__(
        self,
        number: int,
        handlers: Sequence[ShardHandler],
        scheduler: Scheduler,
        caller: Caller,
        poll_interval: float,
        fatal: Callable[[BaseException], None],
        trouble: Trouble,
        bell: Bell | None = None,
    ) -> None:
        super().__init__(name=f"lowkiq-worker-{number}", daemon=True)
        self._trouble = trouble
        self.handlers = handlers
        #: The threads whose shards it runs when they can't.
        self.others: Sequence[WorkerThread] = ()
        self._scheduler = scheduler
        self._caller = caller
        self._poll_interval = poll_interval
        self._fatal = fatal
        self._inbox: deque[tuple[ShardHandler, float]] = deque()
        self._bell = bell or LocalBell()
        self._by_prefix = {handler.shard.prefix.encode(): handler for handler in handlers}
        self._is_stopping = self._is_quiet = self._is_calm = self._is_exchanging = False
        self._next_poll_at = 0.0
        self._retry_delay = RETRY_FROM
        #: The shard whose claim is performed, or performed and not yet settled.
        self.in_hand: ShardHandler | None = None
        self.processed = self.failed = 0

    def hear(self, handler: ShardHandler, due_at: float) -> None:
        """A shard has a job due then (monotonic)."""
        self._inbox.append((handler, due_at))
        self._bell.ring()

    def poll_soon(self) -> None:
        """Bells may have been missed."""
        self._next_poll_at = 0.0
        self._bell.ring()

    def quiet(self) -> None:
        """Claim nothing more, and have nothing handed over."""
        self._is_quiet = True
        self._bell.ring()

    @property
    def is_calm(self) -> bool:
        """Whether a thread that was told to be quiet has nothing handed over any more: it said so, or runs a job."""
        return self._is_calm or self.in_hand is not None

    def stop(self) -> None:
        """End after the batch in hand."""
        self._is_stopping = True
        self._bell.ring()

    def run(self) -> None:
        try:
            while not self._is_stopping or self.in_hand:
                self._step()
            self._bell.close()
        except BaseException as error:  # noqa: BLE001 (a thread must not die unnoticed: its shards would stand still)
            self._fatal(error)

    def count(self, settled: Settled) -> None:
        """Jobs of this thread were settled, by it or by the lease keeper: who does it holds their `settling`."""
        self.processed += settled.acked
        self.failed += settled.failed

    def may_touch(self, handler: ShardHandler) -> bool:
        """Whether a thread that was told to stop may still send something for that shard."""
        return self.is_alive() and (self._is_exchanging or self.in_hand is handler)

    def stuck(self, now: float) -> Sequence[ShardHandler]:
        """The shards that wait behind a batch that takes long."""
        busy = self.in_hand
        if busy is None or not busy.running or now - busy.running_since < self._poll_interval:
            return ()
        return [handler for handler in self.handlers if handler is not busy]

    def _step(self) -> None:
        """One round: hear, pick, exchange with Redis, perform."""
        self._hear()
        self._is_exchanging = True
        try:
            handler = self._pick_and_exchange()
        finally:
            self._is_exchanging = False
        if handler:
            handler.perform()

    def _pick_and_exchange(self) -> ShardHandler | None:
        """Returns the shard whose jobs are to be performed."""
        now = clock.monotonic()
        handler = self._pick(now)
        # What was performed is settled first: there is one claim in hand.
        is_free = self.in_hand is None and (handler is not None or self._is_quiet)
        if is_free and self._bell.is_idle and (handed := self._heard(self._bell.be_busy())):
            self._give_way(handler, handed)
            return handed
        self._is_calm = self._is_quiet
        polled = self._due_for_poll(now)
        if handler is None and self.in_hand is None and not polled:
            return self._wait(now)
        try:
            in_hand = self._exchange(handler, polled)
        except RedisError as error:
            self._wait_for_redis(handler, error)
            return None
        self._trouble.over()
        self._retry_delay = RETRY_FROM
        return in_hand

    def _hear(self) -> None:
        while self._inbox:
            self._scheduler.note(*self._inbox.popleft())

    def _pick(self, now: float) -> ShardHandler | None:
        if self._is_stopping or self._is_quiet:
            return None
        while handler := self._scheduler.pick(now):
            if handler.holds(handler.epoch) and not handler.is_wanted and handler.take(self):
                return handler
            # Not ours now: the lease keeper tells us of it again when it is; and what another thread leaves, a poll.
        return None

    def _due_for_poll(self, now: float) -> list[ShardHandler]:
        if now < self._next_poll_at or self._is_stopping or self._is_quiet:
            return []
        self._next_poll_at = now + self._poll_interval
        stuck = [handler for thread in self.others for handler in thread.stuck(now)]
        return [handler for handler in (*self.handlers, *stuck) if handler.epoch]

    def _wait(self, now: float) -> ShardHandler | None:
        """Until there is something to do; returns the shard whose jobs came with the ring."""
        due_at = self._scheduler.next_due_at()
        until = min(self._next_poll_at, self._next_poll_at if due_at is None else due_at)
        if self._is_quiet:
            until = now + self._poll_interval
        is_idle = not (self._is_quiet or self._is_stopping)
        return self._heard(self._bell.wait(max(until - now, 0.0), is_idle=is_idle))

    # ── the bell ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _heard(self, heard: Heard) -> ShardHandler | None:
        """Returns the shard if jobs came with the ring."""
        now = clock.monotonic()
        if heard.is_unsure:
            for handler in self.handlers:
                if handler.is_open:  # what was handed over is found, and given back, by claims
                    self._scheduler.note(handler, now)
        ring = heard.ring
        rung = self._by_prefix.get(ring.shard) if ring else None
        if not (ring and rung):
            return None
        if ring.handed and (claim := rung.take_handed(ring.handed, self)):
            in_hand = self._note_claimed(rung, ring.handed.epoch, claim, now)
            if in_hand is None:  # the lease was lost meanwhile
                rung.leave()
            return in_hand
        self._note(rung, ring.due_in, now)
        return None

    def _give_way(self, handler: ShardHandler | None, handed: ShardHandler) -> None:
        """A shard that was picked waits for one whose jobs are here already."""
        if handler and handler is not handed:
            self._scheduler.note(handler, clock.monotonic())
            handler.leave()

    # ── one round trip ──────────────────────────────────────────────────────────────────────────────────────────────

    def _exchange(self, handler: ShardHandler | None, polled: list[ShardHandler]) -> ShardHandler | None:
        """Settles the last claim, claims the next, and polls: what there is of them, in one round trip."""
        done = self.in_hand
        try:
            if done is None:
                return self._send(None, None, handler, polled)
            with done.settling:
                return self._send(done, done.settle_call(last=True), handler, polled)
        finally:
            for over in (done, handler):
                if over and over is not self.in_hand:
                    over.leave()

    def _send(
        self,
        done: ShardHandler | None,
        settle: Settle | None,
        handler: ShardHandler | None,
        polled: list[ShardHandler],
    ) -> ShardHandler | None:
        calls: list[Call[Any]] = [settle.call] if settle else []
        epoch, claim_calls = handler.claim_calls() if handler else (None, [])
        calls += claim_calls
        claim_at = len(calls) - 1
        groups = list(chunked(polled, self._caller.shards_a_call))
        calls += [peek([member.shard for member in group]) for group in groups]
        results = self._caller.run_all(calls)
        now = clock.monotonic()
        if done:
            self._note_settled(done, settle, results, now)
        claimed = self._note_claimed(handler, epoch, results[claim_at], now) if handler and epoch else None
        polls = results[claim_at + 1 :]
        for group, result in zip(groups, polls, strict=True):
            if not isinstance(result, Exception):
                self._note_polled(group, result, now)
        if claimed is None:  # else there are jobs to run, though a server of a cluster is away
            raise_first(polls)
        return claimed

    def _note_settled(
        self,
        done: ShardHandler,
        settle: Settle | None,
        results: list[Any],
        now: float,
    ) -> None:
        if settle:  # else the lease was lost, and there is nothing to say any more
            result = results[0]
            if isinstance(result, Settled):
                done.settled(settle)
                self.count(result)
                self._note(done, result.due_in, now)
            elif not refused(done, settle.epoch, result):
                raise result
        done.finished()
        self.in_hand = None

    def _note_polled(self, group: list[ShardHandler], result: list[float | None], now: float) -> None:
        for handler, due_in in zip(group, result, strict=True):
            self._note(handler, due_in, now)

    def _note_claimed(self, handler: ShardHandler, epoch: str, result: Any, now: float) -> ShardHandler | None:
        """Returns the shard if there are jobs of it in hand."""
        if isinstance(result, Claim):
            handler.claimed(result, epoch)
            if handler.is_busy:
                # Its next claim goes along with the settle, whatever is queued now: that costs no round trip of its
                # own, and under load there is mostly something by then.
                self._scheduler.note(handler, now)
                self.in_hand = handler
                return handler
            self._note(handler, result.due_in, now)
        elif isinstance(result, Unsettled | StaleClaim):
            # A claim of which we never heard arrived late. It is given back with the next one.
            self._scheduler.note(handler, now)
        elif not refused(handler, epoch, result):
            raise result
        return None

    def _note(self, handler: ShardHandler, due_in: float | None, now: float) -> None:
        self._scheduler.note(handler, None if due_in is None else now + due_in)

    def _wait_for_redis(self, handler: ShardHandler | None, error: RedisError) -> None:
        """Redis is gone, or refuses to write: keep the outcomes, and try for ever."""
        self._trouble.met(error)
        if handler:
            self._scheduler.note(handler, clock.monotonic())
        # Sleeps through bells: they bring nothing while Redis is gone.
        time.sleep(self._retry_delay * random.uniform(0.5, 1.5))  # noqa: S311 (spreads load)
        self._retry_delay = min(self._retry_delay * 2, RETRY_TO)
