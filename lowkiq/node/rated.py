"""Rated: has the claims of one thread start jobs no sooner than their rate says, and puts the others back."""

from __future__ import annotations

import random
import threading
import time
from typing import Protocol

from redis.exceptions import RedisError

from lowkiq import clock
from lowkiq.errors import LowkiqError
from lowkiq.node.job_thread import RETRY_FROM, RETRY_TO
from lowkiq.node.leases.claim_in_hand import ClaimInHand
from lowkiq.node.leases.thread_claim import ThreadClaim
from lowkiq.node.runtime import Runtime
from lowkiq.queue.shard import Settled
from lowkiq.shared_page import Seat


class Thread(Protocol):
    """A worker thread, or a feeder, as far as this needs it."""

    settling: threading.Lock

    def count(self, settled: Settled) -> None:
        """Counts jobs settled for it. The caller holds `settling`."""


class Rated:
    """What can't be asked goes back, and the thread waits a moment."""

    def __init__(self, runtime: Runtime, thread: Thread) -> None:
        self._runtime = runtime
        self._thread = thread
        self._delay = RETRY_FROM

    def perform(self, claim: ThreadClaim, since: float, seat: Seat) -> bool:
        """As the claim's own `perform`, in parts: of what is granted at a time all can start while that is fresh."""
        window = self._runtime.settings.claim_window
        is_quick = True
        while is_quick and claim.has_unstarted and not claim.is_lost:
            rate = claim.lease.gate.rate
            seconds = min(rate.fresh / 2, window) if rate else window
            if not self.admit(claim, claim.lease.claim_size.within(seconds)):
                break
            if (wait := claim.startable_at - clock.monotonic()) > 0:
                time.sleep(wait)  # no longer than a claim_window
            begun_at = clock.monotonic()
            is_quick = claim.perform(since, seat) or clock.monotonic() - begun_at < window
        self.flush(claim)
        return is_quick

    def admit(self, claim: ClaimInHand, most: int) -> bool:
        """Asks for what a claim has not started, and puts back what may not start. Returns whether anything may."""
        try:
            granted = claim.ask_gate(most)
            if granted:  # else the settle goes along with the next claim, at once
                self._put_back(claim)
        except (LowkiqError, RedisError) as error:
            claim.give_back()
            self._wait(error)
            return False
        self._delay = RETRY_FROM
        return granted

    def flush(self, claim: ClaimInHand) -> None:
        """Tells Redis at once of what is to rest. If that fails, the next call does."""
        try:
            claim.lease.gate.flush()
        except RedisError as error:
            self._runtime.outage.met(error)

    def _put_back(self, claim: ClaimInHand) -> None:
        """At once, since what runs may take longer than what goes back has to wait."""
        with self._thread.settling:
            settle = claim.settle_call(last=False)
            if not settle:
                return
            results = self._runtime.caller.run_all(settle.calls)
            if settled := claim.settled(settle, results):
                self._thread.count(settled)

    def _wait(self, error: Exception) -> None:
        if isinstance(error, RedisError):
            self._runtime.outage.met(error)
        time.sleep(self._delay * random.uniform(0.5, 1.5))  # noqa: S311 (spreads load)
        self._delay = min(self._delay * 2, RETRY_TO)
