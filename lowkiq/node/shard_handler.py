"""
ShardHandler: runs one shard: claim → perform → settle. It knows the lease's epoch and the claim in hand; it sends
nothing itself, but makes calls for its thread (claim, settle) and for the lease keeper (acquire, settle).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from lowkiq import clock
from lowkiq.errors import Fenced
from lowkiq.handlers.context import Context, enter
from lowkiq.job import Job
from lowkiq.node.claim_in_hand import ClaimInHand, Failures
from lowkiq.queue.call import Call
from lowkiq.queue.claims import Claim, Handed, claim_handed
from lowkiq.queue.shard import Held, Outcome, Owned, Released, Settled, Shard

if TYPE_CHECKING:
    from lowkiq.handlers.performer import Performer
    from lowkiq.settings import Settings
    from lowkiq.worker import Worker


class ShardHandler:
    """
    One shard on this node. One thread at a time runs it; the lease keeper and the draining main thread also touch it,
    under its lock, which is never held across a call to Redis.
    """

    def __init__(self, shard: Shard, performer: Performer, node: str, settings: Settings) -> None:
        self.shard = shard
        self.performer = performer
        #: It is another node's part, and this one only stands in while that is away.
        self.is_foster = False
        #: The list that rings its thread, if it has one.
        self.bell = ""
        #: The thread that took it.
        self.runner: object = None
        self._node = node
        self._settings = settings
        self._batch_size = performer.worker.batch_size
        self._lock = threading.Lock()

        self.epoch: str | None = None
        self._lease_until = 0.0
        #: Of a foster: its own node is back, and stands by for it. So nothing more is claimed.
        self.is_wanted = False
        #: Who owns the shard, when it is not us.
        self.holder: str | None = None

        #: Number of the last claim that was sent, and of the claim in hand.
        self._number = self._in_hand = 0
        self._epoch_in_hand = ""
        self._is_unknown = self._is_open = False
        self._claim: ClaimInHand | None = None
        #: Since when the first outcome has waited to be settled (monotonic).
        self.waits_since: float | None = None
        #: The batch that is performed now, and since when (monotonic).
        self.running: Sequence[Job] = ()
        self.running_since = 0.0
        #: Whether its thread has a claim in hand, be it one that was lost.
        self.is_busy = False

    @property
    def worker(self) -> Worker:
        """The worker of the shard's queue."""
        return self.performer.worker

    def take(self, thread: object) -> bool:
        """Whether that thread runs it from here on, until it leaves: no other does."""
        with self._lock:
            return self._take(thread)

    def _take(self, thread: object) -> bool:
        if self.runner is not None and self.runner is not thread:
            return False
        self.runner = thread
        return True

    def leave(self, thread: object) -> None:
        """That thread has no claim of it in hand, and none on its way. Nothing, if another one runs it by now."""
        with self._lock:
            if self.runner is thread:
                self.runner = None

    # ── lease ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def acquire_call(self, dead_nodes: Sequence[str]) -> Call[Owned | Held]:
        """Asks for the lease."""
        settings = self._settings
        return self.shard.acquire(
            self._node,
            settings.lease_ttl,
            settings.max_crashes,
            dead_nodes,
            is_foster=self.is_foster,
            bell=self.bell,
        )

    def acquired(self, lease: Owned, asked_at: float) -> None:
        """The lease is ours. Its time counts from before the request, so it ends here before it ends in Redis."""
        with self._lock:
            self.holder = None
            self.is_wanted = False
            self.epoch = lease.epoch
            self._lease_until = asked_at + self._settings.lease_ttl
            self._number = 0
            self._is_unknown = self._is_open = False

    def renewed(self, asked_at: float) -> None:
        """The lease was kept."""
        self._lease_until = asked_at + self._settings.lease_ttl

    def lost(self, epoch: str) -> bool:
        """
        Another node owns the shard: nothing more is sent for the claim in hand, and none of its jobs is started.
        Returns False when that was known.
        """
        with self._lock:
            if self.epoch != epoch:
                return False
            self.epoch = None
            self._claim = None
            return True

    def holds(self, epoch: str | None) -> bool:
        """Whether the lease of that epoch is ours and, by our clock, has not run out."""
        return epoch is not None and self.epoch == epoch and clock.monotonic() < self._lease_until

    def release_calls(self) -> list[tuple[str, Call[Released]]]:
        """Gives the shard back, if it is ours: the epoch and the call. Only for a handler that runs nothing."""
        with self._lock:
            if self.epoch is None:
                return []
            return [(self.epoch, self.shard.release(self._node, self.epoch, self._number, "lease"))]

    def give_back_call(self) -> Call[Released] | None:
        """
        Gives the shard back while the node runs on; None as long as there is a claim in hand. From here on nothing more
        is claimed; a claim that is on its way is given back by this call too, or refused after it.
        """
        with self._lock:
            if self.epoch is None or self.is_busy:
                return None
            epoch, self.epoch = self.epoch, None
            return self.shard.release(self._node, epoch, self._number, "lease")

    def abandon_call(self) -> Call[int] | None:
        """Says that we leave while a job runs."""
        return self.shard.abandon(self._node, self.epoch) if self.epoch else None

    # ── claim ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def claim_calls(self, shards: int) -> tuple[str | None, list[Call[Any]]]:
        """
        Asks for jobs, as one of so many shards; the last call is the claim. If the reply to the one before it was lost,
        gives that back first. Returns the epoch too; without the lease, or with one to be given back, there is none,
        and nothing to ask.
        """
        with self._lock:
            if self.epoch is None or self.is_wanted:
                return None, []
            calls: list[Call[Any]] = []
            if self._is_unknown:
                calls.append(self.shard.release(self._node, self.epoch, self._number, "claim"))
            self._number += 1
            self._is_unknown, self._is_open = True, False
            settings = self._settings
            calls.append(
                self.shard.claim(
                    self._node,
                    self.epoch,
                    self._number,
                    self.performer.claim_size.share(shards),
                    settings.max_payloads,
                    settings.load_payload,
                    shards,
                )
            )
            return self.epoch, calls

    @property
    def is_open(self) -> bool:
        """Whether a push may put its job into the last claim, which found nothing."""
        return self._is_open

    def take_handed(self, handed: Handed, thread: object) -> bool:
        """
        `take`, and takes in hand what a push has put into the open claim. False if it speaks of another claim, or
        another thread runs the shard: then its next claim tells.
        """
        claim = claim_handed(handed, self._settings.load_payload)  # the user's, so not under the lock
        with self._lock:
            is_of_it = self._is_open and (self.epoch, self._number) == (handed.epoch, handed.number)
            if not (is_of_it and self._take(thread)):
                return False
            self._hold(claim, handed.epoch)
            return True

    def claimed(self, claim: Claim, epoch: str) -> None:
        """
        Takes the jobs in hand, unless the lease under which they were claimed was lost while the reply was on its way:
        then another owner may have run them.
        """
        with self._lock:
            if self.epoch == epoch:
                self._hold(claim, epoch)

    def _hold(self, claim: Claim, epoch: str) -> None:
        self._is_unknown = False
        self._in_hand = self._number
        self._epoch_in_hand = epoch
        self.is_busy = bool(claim.jobs or claim.spoiled)
        self._is_open = not self.is_busy
        self._claim = ClaimInHand(claim) if self.is_busy else None
        self.waits_since = clock.monotonic() if claim.spoiled else None

    # ── perform ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def perform(self, thread: object, since: float) -> bool:
        """
        Runs the claim's jobs batch by batch, as long as the lease holds and they are as quick as was expected. What is
        left then goes back with the settle: it must not wait behind slow ones. Returns whether they were quick.

        Args:
            thread: it has taken the shard.
            since: when it began to perform what it has in hand, be it of other shards (monotonic).
        """
        window, perform, now = self._settings.claim_window, self.performer.perform, clock.monotonic
        started = before = now()
        performs = 0
        is_late = False
        enter(Context(self, self._epoch_in_hand))
        batch = self._step(thread, None, before, is_first=True)
        while batch:
            failures = perform(batch)
            after = now()
            performs += 1
            is_late = after - before >= window or after - since >= 2 * window
            before = after
            batch = self._step(thread, failures, after, is_last=is_late)
        enter(None)
        if performs:
            self.running = ()  # until here it can't be taken back
            self.performer.claim_size.learn(performs, before - started)
        return not is_late

    def _step(
        self, thread: object, failures: Failures | None, now: float, *, is_first: bool = False, is_last: bool = False
    ) -> list[Job] | None:
        """Ends the batch that was performed, and starts the next one. None when there is none, or it may not start."""
        with self._lock:
            claim = self._claim
            # The lease was lost meanwhile; or the claim was taken back before it began, and the shard is another's.
            if claim is None or self.runner is not thread:
                return None
            if not is_first:
                claim.finish(failures)
                if self.waits_since is None:
                    self.waits_since = now
            if is_last or now >= self._lease_until:
                return None
            self.running = batch = claim.start(self._batch_size)
            self.running_since = now
            return batch

    # ── settle ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def settle_call(self, *, last: bool) -> Settle | None:
        """
        Sends what became of jobs; with `last` also ends the claim: jobs that have not run go back. The caller holds the
        thread's `settling`, and says `settled` when Redis has confirmed.
        """
        with self._lock:
            if self.epoch is None or self._claim is None or not (last or self._claim.has_news()):
                return None
            outcome, done = self._claim.outcome(last=last)
            call = self.shard.settle(self._node, self.epoch, self._in_hand, outcome)
            return Settle(call, outcome, done, self.epoch)

    def settled(self, sent: Settle) -> None:
        """Redis has confirmed."""
        with self._lock:
            if self._claim:
                self._claim.confirm(sent.outcome, sent.done)
                self.waits_since = None

    def take_back_call(self) -> Settle | None:
        """Ends a claim of which nothing runs, since its thread is inside another's job: as `settle_call` does."""
        with self._lock:
            if self.running or self._claim is None:
                return None
            self._claim.give_back()
        return self.settle_call(last=True)

    def give_back_pending(self) -> None:
        """Keeps jobs that have not started from starting; the next settle returns them to the queue."""
        with self._lock:
            if self._claim:
                self._claim.give_back()
                if self.waits_since is None and self._claim.has_news():
                    self.waits_since = clock.monotonic()

    def finished(self) -> None:
        """The claim is over: settled, or no longer ours. Said by its thread, or while that runs none of its jobs."""
        with self._lock:
            self._claim = None
            self.waits_since = None
            self.is_busy = False


class Settle(NamedTuple):
    """A settle to be sent, with what `settled` needs to know of it."""

    call: Call[Settled]
    outcome: Outcome
    done: int
    epoch: str


def refused(handler: ShardHandler, epoch: str, result: object) -> bool:
    """Whether a result says that the shard is no longer ours; the handler then knows."""
    if isinstance(result, Fenced):
        handler.lost(epoch)
        return True
    return False
