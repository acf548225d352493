"""Suspects: runs those of a thread, each in a process of its own; tries those of which its death would not tell."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any, Protocol

from redis.exceptions import RedisError

from lowkiq import clock
from lowkiq.admin.beats.health import name_id
from lowkiq.log import get_logger
from lowkiq.node.leases.thread_claim import ThreadClaim
from lowkiq.node.runtime import Runtime
from lowkiq.node.suspects import trials
from lowkiq.queue.shard import Settled
from lowkiq.shared_page import Seat

logger = get_logger()


#: Performs a claim, of a thread that began then, whose seat tells what runs.
Perform = Callable[[ThreadClaim, float, Seat], bool]


class Thread(trials.Thread, Protocol):
    """A worker thread, as far as its suspects need it."""

    seat: Seat
    settling: threading.Lock

    def count(self, settled: Settled) -> None:
        """Counts jobs settled for it."""


class Suspects:
    """
    Suspects of one thread.

    Args:
        perform_rated: performs a claim whose jobs start at the rate of their worker.
    """

    def __init__(self, runtime: Runtime, thread: Thread, gate: trials.Trials, perform_rated: Perform) -> None:
        self._runtime = runtime
        self._trials = gate
        self._thread = thread
        self._perform_rated = perform_rated

    def perform(self, claim: ThreadClaim) -> None:
        """Runs the suspect that is all of a claim; or puts it off, if it is to be tried, and another one is."""
        if claim.crowds >= trials.TRIED:
            self._try(claim)
        elif self._trials.enter(self._thread):
            try:
                self._run(claim)
            finally:
                self._trials.leave(self._thread)
        claim.give_back()

    def _try(self, claim: ThreadClaim) -> None:
        thread, gate = self._thread, self._trials
        if seconds := gate.begin(thread, claim.crowds):
            claim.put_off(seconds)
            return
        try:
            id = claim.next_id
            is_alone = gate.is_alone(lambda: thread.is_leaving or claim.is_lost)
            if id and not thread.is_leaving and (not is_alone or self._is_noted(claim, id)):
                _log("suspect_is_tried", claim, id, alone=is_alone, deaths=claim.crowds + 1)
                gate.run(thread, trials.Suspect(claim, id) if is_alone else None)
                self._run(claim)
        finally:
            gate.end(thread)

    def _run(self, claim: ThreadClaim) -> None:
        now, seat = clock.monotonic(), self._thread.seat
        if claim.is_rated:
            self._perform_rated(claim, now, seat)
        else:
            claim.perform(now, seat)

    def _is_noted(self, claim: ThreadClaim, id: str) -> bool:
        """Has Redis know that it runs alone. False: it is not to run."""
        try:
            (result,) = self._runtime.caller.run_all([claim.isolate_call(id, is_alone=True)])
            if isinstance(result, Exception):
                claim.refused(result)
        except RedisError as error:
            self._runtime.outage.met(error)
            return False
        return result is True


def put_off_seconds() -> float:
    """Seconds after which a suspect is claimed again for which there is no process now."""
    return random.uniform(trials.QUIET, 2 * trials.QUIET)  # noqa: S311 (spreads load)


def _log(event: str, claim: ThreadClaim, id: str, **facts: Any) -> None:
    logger.info(event, queue=claim.shard.queue, shard=claim.shard.index, id=name_id(id), **facts)
