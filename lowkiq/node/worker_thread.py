"""WorkerThread: picks shards, runs them, and settles them together with the next claims in one round trip."""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from redis.exceptions import RedisError

from lowkiq import clock
from lowkiq.node.bells import LocalBell
from lowkiq.node.claim_size import MOST_SHARDS
from lowkiq.node.round_trip import RoundTrip

if TYPE_CHECKING:
    from lowkiq.node.bells import Bell
    from lowkiq.node.outage import Outage
    from lowkiq.node.schedulers import Scheduler
    from lowkiq.node.shard_handler import ShardHandler
    from lowkiq.queue.bell import Heard
    from lowkiq.queue.call import Caller
    from lowkiq.queue.shard import Settled

#: Seconds between tries while Redis is in trouble: it grows to the second figure, with jitter.
RETRY_FROM, RETRY_TO = 0.05, 1.0


class WorkerThread(threading.Thread):
    """
    Owns a group of shard handlers. The lease keeper settles for it while it is inside a job, under `settling`.

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
        outage: Outage,
        bell: Bell | None = None,
    ) -> None:
        super().__init__(name=f"lowkiq-worker-{number}", daemon=True)
        self._outage = outage
        self.handlers = handlers
        #: The threads whose shards it runs when they can't.
        self.others: Sequence[WorkerThread] = ()
        self._scheduler = scheduler
        self._round_trip = RoundTrip(caller, self._note, self.count)
        self._poll_interval = poll_interval
        self._fatal = fatal
        self._inbox: deque[tuple[ShardHandler, float]] = deque()
        self._bell = bell or LocalBell()
        self._by_prefix = {handler.shard.prefix.encode(): handler for handler in handlers}
        self._is_stopping = self._is_quiet = self._is_calm = self._is_exchanging = False
        self._next_poll_at = 0.0
        self._retry_delay = RETRY_FROM
        self._hand: Sequence[ShardHandler] = ()
        #: Held by whoever has settles of what it has in hand on their way, so that two never cross.
        self.settling = threading.Lock()
        self.processed = self.failed = 0

    @property
    def in_hand(self) -> list[ShardHandler]:
        """The shards whose claims are to be performed, or are performed and not yet settled."""
        # What the lease keeper has taken back may be another thread's by now.
        return [handler for handler in self._hand if handler.runner is self]

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
        return self._is_calm or bool(self._hand)

    def stop(self) -> None:
        """End after the batch in hand."""
        self._is_stopping = True
        self._bell.ring()

    def run(self) -> None:
        try:
            while not self._is_stopping or self._hand:
                self._step()
            self._bell.close()
        except BaseException as error:  # noqa: BLE001 (a thread must not die unnoticed: its shards would stand still)
            self._fatal(error)

    def count(self, settled: Settled) -> None:
        """Jobs of this thread were settled, by it or by the lease keeper: who does it holds `settling`."""
        self.processed += settled.acked
        self.failed += settled.failed

    def may_touch(self, handler: ShardHandler) -> bool:
        """Whether a thread that was told to stop may still send something for that shard."""
        return self.is_alive() and (self._is_exchanging or handler in self.in_hand)

    def is_inside(self, now: float, seconds: float) -> bool:
        """Whether a batch takes that long already."""
        return any(handler.running and now - handler.running_since >= seconds for handler in self.in_hand)

    def stuck(self, now: float) -> Sequence[ShardHandler]:
        """The shards that wait behind a batch that takes long."""
        if not self.is_inside(now, self._poll_interval):
            return ()
        return [handler for handler in self.handlers if handler.runner is not self]

    def _step(self) -> None:
        """One round: hear, pick, exchange with Redis, perform."""
        self._hear()
        self._is_exchanging = True
        try:
            has_jobs = self._pick_and_exchange()
        finally:
            self._is_exchanging = False
        if has_jobs:
            self._perform()

    def _pick_and_exchange(self) -> bool:
        """Returns whether there are jobs to perform."""
        now = clock.monotonic()
        picked = self._pick_several(now)
        # What was performed is settled first.
        is_free = not self._hand and (picked or self._is_quiet)
        if is_free and self._bell.is_idle and (handed := self._heard(self._bell.be_busy())):
            self._give_way(picked, handed)
            return True
        self._is_calm = self._is_quiet
        polled = self._due_for_poll(now)
        if not picked and not self._hand and not polled:
            return self._wait(now)
        try:
            has_jobs = self._exchange(picked, polled)
        except RedisError as error:
            self._wait_for_redis(picked, error)
            return False
        self._outage.over()
        self._retry_delay = RETRY_FROM
        return has_jobs

    def _perform(self) -> None:
        """Once jobs turn out slow, those of other shards go back as well."""
        since = clock.monotonic()
        for handler in self._hand:
            if not handler.perform(self, since):
                break

    def _hear(self) -> None:
        while self._inbox:
            self._scheduler.note(*self._inbox.popleft())

    def _pick_several(self, now: float) -> list[ShardHandler]:
        """Those that share a round trip. One of slow jobs is the last of them: none waits behind it."""
        picked: list[ShardHandler] = []
        most = MOST_SHARDS
        while len(picked) < most and (handler := self._pick(now)):
            picked.append(handler)
            most = min(most, handler.performer.claim_size.shards)
        return picked

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

    def _wait(self, now: float) -> bool:
        """Until there is something to do; returns whether jobs came with the ring."""
        due_at = self._scheduler.next_due_at()
        until = min(self._next_poll_at, self._next_poll_at if due_at is None else due_at)
        if self._is_quiet:
            until = now + self._poll_interval
        is_idle = not (self._is_quiet or self._is_stopping)
        return self._heard(self._bell.wait(max(until - now, 0.0), is_idle=is_idle)) is not None

    # ── the bell ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _heard(self, heard: Heard) -> ShardHandler | None:
        """Returns the shard whose jobs came with the ring, and are in hand now."""
        now = clock.monotonic()
        if heard.is_unsure:
            for handler in self.handlers:
                if handler.is_open:  # what was handed over is found, and given back, by claims
                    self._scheduler.note(handler, now)
        ring = heard.ring
        rung = self._by_prefix.get(ring.shard) if ring else None
        if not (ring and rung):
            return None
        if ring.handed and rung.take_handed(ring.handed, self):
            self._inbox.append((rung, now))  # as after any claim, but noted once the job is done, which waits
            self._hand = [rung]
            return rung
        self._note(rung, ring.due_in, now)
        return None

    def _give_way(self, picked: Sequence[ShardHandler], handed: ShardHandler) -> None:
        """Shards that were picked wait for one whose jobs are here already."""
        for handler in picked:
            if handler is not handed:
                self._scheduler.note(handler, clock.monotonic())
                handler.leave(self)

    # ── one round trip ──────────────────────────────────────────────────────────────────────────────────────────────

    def _exchange(self, picked: Sequence[ShardHandler], polled: Sequence[ShardHandler]) -> bool:
        """Settles the last claims, makes the next, and polls. Returns whether there are jobs to perform."""
        with self.settling:
            done = self.in_hand
            # Until here the lease keeper may have taken back what was picked, and another thread may run it by now.
            picked = [handler for handler in picked if handler.take(self)]
            claimed: list[ShardHandler] = []
            try:
                claimed = self._round_trip.make(done, picked, polled)
            finally:
                # A settle that was not confirmed is repeated.
                self._hand = claimed or [handler for handler in done if handler.is_busy]
                for handler in (*done, *picked):
                    if not handler.is_busy:
                        handler.leave(self)
        return bool(claimed)

    def _note(self, handler: ShardHandler, due_in: float | None, now: float) -> None:
        self._scheduler.note(handler, None if due_in is None else now + due_in)

    def _wait_for_redis(self, picked: Sequence[ShardHandler], error: RedisError) -> None:
        """Redis is gone, or refuses to write: keep the outcomes, and try for ever."""
        self._outage.met(error)
        for handler in picked:
            self._scheduler.note(handler, clock.monotonic())
        # Sleeps through bells: they bring nothing while Redis is gone.
        time.sleep(self._retry_delay * random.uniform(0.5, 1.5))  # noqa: S311 (spreads load)
        self._retry_delay = min(self._retry_delay * 2, RETRY_TO)
