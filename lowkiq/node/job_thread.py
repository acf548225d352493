"""JobThread: a thread that settles jobs and claims the next; what its two kinds, and those that watch them, share."""

from __future__ import annotations

import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from queue import SimpleQueue
from typing import Final

from redis.exceptions import RedisError

from lowkiq import clock
from lowkiq.errors import LowkiqError
from lowkiq.handlers import forks
from lowkiq.node.leases.claim_in_hand import Batch, ClaimInHand
from lowkiq.node.leases.lease import Lease
from lowkiq.node.pool import Pool
from lowkiq.node.runtime import Runtime
from lowkiq.node.suspects.trials import Trials
from lowkiq.queue.bell import Heard
from lowkiq.queue.claims import Handed
from lowkiq.queue.shard import Settled

#: Seconds between tries while Redis is away or refuses: it grows to the second figure, with jitter.
RETRY_FROM: Final = 0.05
RETRY_TO: Final = 1.0


class JobThread(threading.Thread, ABC):
    """
    A member of a pool. Its kinds: a worker thread runs what it claims, the feeder has the event loop run it.

    Others settle for it while it can't, under `settling`.
    """

    def __init__(self, name: str, pool: Pool, runtime: Runtime, trials: Trials) -> None:
        super().__init__(name=name, daemon=True)
        self.pool = pool
        pool.join(self)
        #: Shared by all threads of the node.
        self.trials = trials
        #: Held while settles of what it has in hand are on their way, so that two never cross.
        self.settling = threading.Lock()
        self.processed = self.failed = 0
        self._runtime = runtime
        self._roused: SimpleQueue[None] = SimpleQueue()
        self._is_stopping = self._is_quiet = self._is_calm = False
        #: It is to begin nothing more.
        self.is_leaving = False
        self._retry_delay = RETRY_FROM

    @property
    @abstractmethod
    def in_hand(self) -> Sequence[ClaimInHand]:
        """The claims that are to be performed, or are performed and not yet settled."""

    @property
    def batches(self) -> Iterator[tuple[ClaimInHand, Batch]]:
        """The batches that run now, each with its claim."""
        return ((claim, batch) for claim in self.in_hand for batch in claim.batches)

    @property
    def busy(self) -> int:
        return int(bool(self.in_hand))

    @property
    def free(self) -> int:
        """Batches that it could begin besides."""
        return 1 - self.busy

    @abstractmethod
    def is_inside(self, now: float, seconds: float) -> bool:
        """Returns whether a batch has taken that long already, so that the thread can't settle."""

    @abstractmethod
    def lasts_at(self, patience: float) -> float:
        """When what it has in hand lasts, at a batch of so many seconds (monotonic); inf while that can't be told."""

    def rest(self) -> None:
        """Waits to be roused."""
        self._roused.get()

    def rouse(self) -> None:
        """Ends its rest, or the next one."""
        self._roused.put(None)

    def quiet(self) -> None:
        """Has the thread claim nothing more, and get nothing handed over."""
        self._is_quiet = self.is_leaving = True
        self.pool.rouse(self)

    def resume(self) -> None:
        """Has a quiet thread claim again."""
        self._is_quiet = self._is_calm = False
        self.is_leaving = False
        if self._is_stopping:  # asked for afterwards: `stop` says the two in the other order
            self.is_leaving = True
        self.pool.poll_soon()
        self.pool.rouse(self)

    @property
    def is_calm(self) -> bool:
        """True once a quiet thread gets nothing handed over any more: it said so, or runs a job."""
        return self._is_calm or bool(self.in_hand)

    @property
    def is_stopping(self) -> bool:
        """True once the node ends."""
        return self._is_stopping

    def stop(self) -> None:
        """Ends the thread after what is in hand."""
        self._is_stopping = self.is_leaving = True
        self.pool.rouse(self)

    def count(self, settled: Settled) -> None:
        """Counts jobs settled for this thread, by itself or by another. The caller holds `settling`."""
        self.processed += settled.acked
        self.failed += settled.failed

    # ── its loop ────────────────────────────────────────────────────────────────────────────────────────────────────

    def run(self) -> None:
        fork = forks.number
        try:
            while not self._is_stopping or self.in_hand:
                self._step()
                if forks.number != fork:
                    forks.leave()
            self._give_places()
            self.pool.leave(self)
        except BaseException as error:  # noqa: BLE001 (a thread must not die unnoticed: its shards would stand still)
            self._runtime.fatal(error)

    @abstractmethod
    def _give_places(self) -> None:
        """Gives back the places (places.py) that it has no use for."""

    @abstractmethod
    def _step(self) -> None:
        """One round."""

    def _answer(self, heard: Heard) -> Lease | None:
        """Acts on a ring. Returns the shard whose jobs came with it, and are in hand now."""
        now = clock.monotonic()
        if heard.is_unsure:
            for lease in self.pool.leases:
                if lease.is_open:  # what was handed over is found, and given back, by claims
                    self.pool.wake(lease, now)
        ring = heard.ring
        rung = self.pool.of_prefix(ring.shard) if ring else None
        if not (ring and rung):
            return None
        if ring.handed and self._take_handed(rung, ring.handed):
            return rung
        self.pool.wake(rung, now + ring.due_in)
        return None

    @abstractmethod
    def _take_handed(self, lease: Lease, handed: Handed) -> bool:
        """Takes a job that a push has handed over. False: it can't."""

    def _note_success(self, *, polled: bool) -> None:
        """Notes that Redis is there. A poll reaches all of a cluster, and whoever met the trouble may rest by now."""
        if self._runtime.outage.is_on:
            self._runtime.outage.over(*(thread.name for thread in self.pool.threads if polled))
        self._retry_delay = RETRY_FROM

    def _wait_for_redis(self, picked: Sequence[Lease], error: RedisError | LowkiqError) -> None:
        """Redis is gone, or refuses to write: keep the outcomes, and try for ever."""
        self._runtime.outage.met(error)
        for lease in picked:
            self.pool.wake(lease, clock.monotonic())
        # Sleeps through bells: they bring nothing while Redis is gone.
        time.sleep(self._retry_delay * random.uniform(0.5, 1.5))  # noqa: S311 (spreads load)
        self._retry_delay = min(self._retry_delay * 2, RETRY_TO)


def leases_of_threads(threads: Sequence[JobThread]) -> list[Lease]:
    """The shards that these threads run."""
    return [lease for pool in dict.fromkeys(thread.pool for thread in threads) for lease in pool.leases]
