"""Suspects: runs those of a thread one by one, each alone on the node, and has Redis know which one does."""

from __future__ import annotations

import threading
from typing import Any, Protocol

from redis.exceptions import RedisError

from lowkiq import clock
from lowkiq.admin.beats.health import name_id
from lowkiq.log import get_logger
from lowkiq.node.leases.thread_claim import ThreadClaim
from lowkiq.node.runtime import Runtime
from lowkiq.node.suspects import isolation
from lowkiq.queue.call import Call
from lowkiq.queue.shard import Settled
from lowkiq.shared_page import Seat

logger = get_logger()


class Thread(isolation.Thread, Protocol):
    """A worker thread, as far as its suspects need it."""

    seat: Seat
    settling: threading.Lock

    def count(self, settled: Settled) -> None:
        """Counts jobs settled for it."""


class Suspects:
    """Suspects of one thread."""

    def __init__(self, runtime: Runtime, thread: Thread, gate: isolation.Isolation) -> None:
        self._runtime = runtime
        self._isolation = gate
        self._thread = thread

    def perform(self, claim: ThreadClaim) -> None:
        """Runs as many of a claim as have their turn, if it is theirs at all; the others go back."""
        thread, gate, asked_at = self._thread, self._isolation, clock.monotonic()
        if gate.begin(thread, lambda: thread.is_leaving or claim.is_lost):
            try:
                id = claim.next_suspect
                while self._settle_and_isolate(claim, id) and id:
                    _log("suspect_runs_alone", claim, id)
                    gate.run(claim, id, claim.next_crowds)
                    claim.perform_suspect(thread.seat)
                    id = claim.next_suspect if gate.is_kept(thread) else None
            finally:
                gate.end(thread)
        elif (seconds := clock.monotonic() - asked_at) > isolation.LOOK and (id := claim.next_suspect):
            _log("suspect_waits", claim, id, seconds=round(seconds, 1), advice="jobs that take long are in its way")
        claim.give_back()

    def _settle_and_isolate(self, claim: ThreadClaim, id: str | None) -> bool:
        """
        Settles what has run, so that no death to come is held against a suspect that is done, and has Redis know that
        `id` runs alone. Returns whether it may start.
        """
        with self._thread.settling:
            settle = claim.settle_call(last=False)
            calls: list[Call[Any]] = [settle.call] if settle else []
            if id:
                calls.append(claim.isolate_call(id, is_alone=True))
            try:
                results = self._runtime.caller.run_all(calls)
                if settle and (settled := claim.settled(settle, results[0])):
                    self._thread.count(settled)
                if id and isinstance(results[-1], Exception):
                    claim.refused(results[-1])
                return bool(id) and results[-1] is True
            except RedisError as error:  # the thread's next exchange settles, and waits for Redis
                self._runtime.outage.met(error)
                return False


def _log(event: str, claim: ThreadClaim, id: str, **facts: Any) -> None:
    logger.info(event, queue=claim.shard.queue, shard=claim.shard.index, id=name_id(id), **facts)
