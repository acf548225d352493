"""ClaimInHand: the jobs of one claim on their way through perform, and what of it Redis does not know yet."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, Self

from lowkiq import clock
from lowkiq.handlers.context import Context, enter
from lowkiq.handlers.retries import Failures
from lowkiq.job import Job
from lowkiq.node.lease import Asked, Lease, Runner
from lowkiq.queue.call import Call
from lowkiq.queue.claims import Claim, Handed, claim_handed, load_all
from lowkiq.queue.shard import Exhausted, Failure, Outcome, Rest, Settled
from lowkiq.shared_page import Seat


class Thread(Runner, Protocol):
    """A worker thread, as far as others settle for it."""

    #: Held while settles of what it has in hand are on their way, so that two never cross.
    settling: threading.Lock

    @property
    def in_hand(self) -> Sequence[ClaimInHand]:
        """The claims that it is to perform, or performs, and that are not yet settled."""

    def is_inside(self, now: float, seconds: float) -> bool:
        """Returns whether a batch has taken that long already."""

    def count(self, settled: Settled) -> None:
        """Counts jobs settled for it. The caller holds `settling`."""


class Settle(NamedTuple):
    """A settle to be sent, with what `settled` needs to know of it."""

    call: Call[Settled]
    outcome: Outcome
    done: int


class ClaimInHand:
    """
    Two positions say it all, since jobs run in order: before `_done` they have an outcome, before `_started` they
    run or have one. Success costs no more than a step of the position. What was sent stays known until it is confirmed,
    since a reply can be lost and a settle can be repeated.

    Its lease's lock is its own too. Once that lease is lost, nothing more is started or sent.
    """

    def __init__(self, lease: Lease, claim: Claim, epoch: str, number: int, thread: Thread) -> None:
        self.lease = lease
        #: Whose turn it is.
        self.thread = thread
        #: Of the lease under which it was claimed.
        self.epoch = epoch
        self.number = number
        self._lock = lease.lock
        self.worker = lease.performer.worker
        self.shard = lease.shard
        #: Of suspects, each of which is to run alone on the node.
        self.crowds = claim.crowds
        self._batch_size = 1 if claim.crowds else self.worker.batch_size
        self._jobs = claim.jobs
        self._has_several = claim.has_several
        self._started = self._done = self._settled = 0
        #: Jobs from here on are not to be started: they go back.
        self._end = len(claim.jobs)
        self._failed: list[Failure] = []
        self._exhausted: list[Exhausted] = []
        self._failed_ids: set[str] = set()
        self._spoiled = list(claim.spoiled)
        #: What else the ids of spoiled payloads hold, and jobs that are kept from starting.
        self._released = list(dict.fromkeys(row.id for row in claim.spoiled)) if claim.spoiled else []
        #: Since when the first outcome has waited to be settled (monotonic).
        self.waits_since: float | None = clock.monotonic() if claim.spoiled else None
        #: The batch that is performed now, and since when (monotonic).
        self.running: Sequence[Job] = ()
        self.running_since = 0.0
        #: A push has handed its only job over.
        self.came_alone = False
        #: Settled, or no longer ours: its thread has nothing to do for it any more.
        self.is_over = False

    @classmethod
    def of_reply(cls, lease: Lease, claim: Claim, asked: Asked, thread: Thread) -> Self | None:
        """Takes in hand what was claimed, if it is anything, and the lease still ours."""
        in_hand = cls(lease, claim, asked.epoch, asked.number, thread) if claim.jobs or claim.spoiled else None
        return in_hand if lease.answered(asked, in_hand) else None

    @classmethod
    def of_ring(cls, lease: Lease, handed: Handed, thread: Thread, seat: Seat) -> Self | None:
        """Takes in hand what a push has put into the open claim, and gives that thread a turn, if it may have one."""
        load = lease.runtime.settings.load_payload  # the user's, so not under the lock
        claim = lease.load_seated(seat, handed.number, claim_handed, handed, load)
        in_hand = cls(lease, claim, handed.epoch, handed.number, thread)
        in_hand.came_alone = True
        return in_hand if lease.handed(handed, in_hand, thread) else None

    @property
    def has_unstarted(self) -> bool:
        """True if jobs wait for their turn in it."""
        return self._started < self._end

    @property
    def is_lost(self) -> bool:
        """True if another node may run the shard by now."""
        return not self.lease.holds(self.epoch)

    # ── perform ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def perform(self, since: float, seat: Seat) -> bool:
        """
        Runs the jobs batch by batch, as long as the lease holds and they are as quick as was expected. What is left
        then goes back with the settle: it must not wait behind slow ones. Returns whether they were quick.

        Args:
            since: when its thread began to perform what it has in hand, be it of other shards (monotonic).
            seat: tells the supervisor, once the node is dead, which batch it was at.
        """
        lease, lock, epoch, now = self.lease, self._lock, self.epoch, clock.monotonic
        performer, window = lease.performer, lease.runtime.settings.claim_window
        plain, perform, jobs, size = performer.plain, performer.perform, self._jobs, self._batch_size
        self._begin(seat)
        place, performs, failures, is_late = seat.place, 0, None, False
        started = before = now()
        enter(Context(self))
        # All that a job costs the node is in this loop, so what it could call is written out here.
        while True:
            with lock:
                first = self._done = self._started
                if performs and self.waits_since is None:
                    self.waits_since = before
                if failures is not None:
                    self._note(failures)
                last = first + size if size < self._end - first else self._end
                if is_late or first == last or lease.epoch != epoch or before >= lease.until:
                    break
                self._started = last
                self.running = batch = jobs[first:last]
                self.running_since = before
            place[0] = last
            if plain is None:
                failures = perform(batch)
            else:
                try:
                    plain({job.id: job.payloads for job in batch} if size > 1 else {batch[0].id: batch[0].payloads})
                    failures = None
                except BaseException as error:  # noqa: BLE001 (whatever user code raises fails its batch)
                    failures = performer.failures(batch, error)
            after = now()
            performs += 1
            is_late = after - before >= window or after - since >= 2 * window
            before = after
        seat.end()
        enter(None)
        if performs:
            self.running = ()  # until here it can't be taken back
            lease.claim_size.learn(performs, before - started)
        return not is_late

    def _begin(self, seat: Seat) -> None:
        # Spoiled payloads are of jobs in between, so nobody could tell by its place in the claim which one runs.
        batch_size = 0 if self._released else self._batch_size
        seat.begin(self.shard.prefix, self.number, len(self._jobs), batch_size)

    @property
    def next_suspect(self) -> str | None:
        """The suspect that is to run next, as long as that may start."""
        return None if self.is_lost or self._started >= self._end else self._jobs[self._started].id

    @property
    def next_crowds(self) -> int:
        """How often that died among others after the first time."""
        return self.crowds[self._started]

    def isolate_call(self, id: str, *, is_alone: bool) -> Call[bool]:
        """Tells Redis that this job of it runs alone, or does so no longer."""
        return self.shard.isolate(self.lease.runtime.node, self.epoch, self.number, id, is_alone=is_alone)

    def perform_suspect(self, seat: Seat) -> None:
        """Runs the next job alone. Its payloads are loaded only now."""
        self._begin(seat)
        seat.place[0] = self._started + 1
        if self._load(self._jobs[self._started]):
            self.perform(-math.inf, seat)
        seat.end()

    def _load(self, job: Job) -> bool:
        spoiled = load_all(job, self.lease.runtime.settings.load_payload)
        with self._lock:
            if spoiled:
                self._started = self._done = self._started + 1
                self._failed_ids.add(job.id)
                self._spoiled += spoiled
                self._released.append(job.id)
        return not spoiled

    def _note(self, failures: Failures) -> None:
        self._failed += failures.failed
        self._exhausted += failures.exhausted
        self._failed_ids.update(row.id for row in failures.failed)
        self._failed_ids.update(row.id for row in failures.exhausted)

    # ── settle ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def settle_call(self, *, last: bool) -> Settle | None:
        """
        Sends what became of jobs; with `last` also ends the claim: jobs that have not run go back. The caller holds the
        thread's `settling`, and says `settled` when Redis has answered.
        """
        with self._lock:
            if self.lease.epoch != self.epoch or not (last or self._has_news()):
                return None
            outcome = self._outcome(last=last)
            call = self.shard.settle(self.lease.runtime.node, self.epoch, self.number, outcome)
            return Settle(call, outcome, self._done)

    def finish_call(self, following: int) -> Call[Settled | None]:
        """Settles it as `settle_call(last=True)` does when every job is done, and opens the claim with that number."""
        return self.shard.finish(self.lease.runtime.node, self.epoch, self.number, following)

    def settled(self, sent: Settle, result: Any) -> Settled | None:
        """Notes Redis's answer. Returns what it has confirmed, None if the lease is lost; raises any other error."""
        if not isinstance(result, Settled):
            self.lease.refused(self.epoch, result)
            return None
        outcome = sent.outcome
        with self._lock:
            self._settled = sent.done
            # What came since stays.
            del self._released[: len(outcome.released)]
            del self._failed[: len(outcome.failed)]
            del self._exhausted[: len(outcome.exhausted)]
            del self._spoiled[: len(outcome.spoiled)]
            self.waits_since = None
        return result

    def take_back_call(self) -> Settle | None:
        """Ends a claim of which nothing runs, since its thread is inside another's job: as `settle_call` does."""
        with self._lock:
            if self.running or self.lease.epoch != self.epoch:
                return None
            self._give_back()
        return self.settle_call(last=True)

    def give_back(self) -> None:
        """Keeps the jobs that have not started from starting; the next settle returns them to the queue."""
        with self._lock:
            self._give_back()
            if self.waits_since is None and self._has_news():
                self.waits_since = clock.monotonic()

    def _give_back(self) -> None:
        self._released += [job.id for job in self._jobs[self._started : self._end]]
        self._end = self._started

    def finish(self) -> None:
        """Ends it: settled, or no longer ours. Called by its thread, or while that runs none of its jobs."""
        with self._lock:
            self.waits_since = None
            self.is_over = True
            self.lease.let_go(self)

    def _has_news(self) -> bool:
        """Returns whether there is anything to settle."""
        return self._done > self._settled or bool(self._spoiled or self._released)

    def _outcome(self, *, last: bool) -> Outcome:
        """News for Redis. With `last` the claim ends: jobs that are done, or never ran, are its rest, and not named."""
        rest: Rest = "keep" if not last else "release" if self._started < self._end else "ack"
        done = self._jobs[self._settled : self._done] if rest != "ack" else ()
        return Outcome(
            acked=[job.id for job in done if job.id not in self._failed_ids],
            released=tuple(self._released),
            failed=tuple(self._failed),
            exhausted=tuple(self._exhausted),
            spoiled=tuple(self._spoiled),
            rest=rest,
            has_several=self._has_several,
        )
