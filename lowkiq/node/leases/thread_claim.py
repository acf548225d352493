"""ThreadClaim: a claim whose batches run one after the other, on a thread."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Final

from lowkiq import clock
from lowkiq.handlers import forks
from lowkiq.handlers.context import Progress, begin
from lowkiq.handlers.log_fields import BLANK
from lowkiq.handlers.retries import Failures, loggable
from lowkiq.handlers.stop import Stop
from lowkiq.job import Job
from lowkiq.log import get_logger
from lowkiq.node.counts.times import Ran
from lowkiq.node.leases.claim_in_hand import Batch, ClaimInHand, Thread
from lowkiq.node.leases.lease import Lease
from lowkiq.queue.claims import Claim
from lowkiq.queue.letters import MOST_LETTERS
from lowkiq.shared_page import Seat

logger = get_logger()

#: Seconds from which on the run of a batch is counted alone; those of a claim that are quicker count by their mean.
SLOW: Final = 0.0001


class ThreadClaim(ClaimInHand):
    """
    Two positions say it all, since jobs run in order: before `_done` they have an outcome, before `_started` they
    run or have one. Success costs no more than a step of the position.
    """

    def __init__(self, lease: Lease, claim: Claim, epoch: str, number: int, thread: Thread) -> None:
        super().__init__(lease, claim, epoch, number, thread)
        self._started = self._done = self._settled = 0
        #: Seconds that its jobs have taken of the thread, and that nobody has asked for yet.
        self._seconds = 0.0
        #: Jobs from here on are not to be started: they go back.
        self._end = len(claim.jobs)
        #: Those before it may start now; the others have to be asked for.
        self._until = self._end
        #: The batch that is performed now, and since when (monotonic); what it has told; and how it can be ended.
        self.running: Sequence[Job] = ()
        self.running_since = 0.0
        #: Since when its batches are performed (monotonic); inf: none is.
        self.performing_since = math.inf
        self._told: tuple[Sequence[Job], Progress] | None = None
        self._overdue_since = 0.0
        self.stopper: Callable[[Stop], None] | None = None
        self._seat: Seat
        #: Gives the process that performs it; 0: none, or none yet.
        self.read_pid: Callable[[], int] = lambda: 0

    @property
    def has_unstarted(self) -> bool:
        """True if jobs wait for their turn in it."""
        return self._started < self._end

    @property
    def batches(self) -> Sequence[Batch]:
        """The batch that runs now."""
        return (self,) if self.running else ()

    # ── the batch that runs (context.py, Run) ───────────────────────────────────────────────────────────────────────

    @property
    def is_cancelled(self) -> bool:
        """True once a job of it was cancelled, or it takes too long."""
        self.note_overdue()
        return self.to_stop_since is not None

    def may_start(self) -> bool:
        """For batches that wait for something between the loop of `perform`, which asks the same, and their start."""
        return self.may_start_now(self.running)

    @property
    def pid(self) -> int | None:
        """The process that performs it, if that is not the node."""
        return self.read_pid() or None

    @property
    def to_stop_since(self) -> float | None:
        """When it was asked to stop (monotonic)."""
        return self.asked_to_stop(self.running, self.running_since)

    @property
    def progress(self) -> Progress | None:
        """Its own word on how far it is."""
        told = self._told
        return told[1] if told and told[0] is self.running else None

    def note_overdue(self) -> None:
        """Logs, once a batch, that it takes longer than perform_timeout and that nothing can end it."""
        timeout, batch, since = self.worker.perform_timeout, self.running, self.running_since
        if timeout is None or not batch or self.stopper or self._overdue_since == since:
            return
        if clock.monotonic() - since >= timeout:
            self._overdue_since = since
            logger.warning(
                "perform_timeout_exceeded", queue=self.shard.queue, shard=self.shard.index,
                ids=loggable(job.id for job in batch), perform_timeout=timeout,
                advice='it runs on: end it when current().cancelled, or use async def or isolation="process"',
            )  # fmt: skip

    def report(self, progress: Progress) -> None:
        """Tells people how far it is."""
        self._told = self.running, progress

    def stop(self, reason: Stop) -> bool:
        """Ends what runs, if something knows how to; what has not started and is cancelled goes back, to be dropped."""
        if reason is Stop.CANCELLED and self.has_cancelled(self._jobs[self._started :]):
            self.give_back()
        stopper = self.stopper
        if stopper is None:
            return False
        if reason is not Stop.CANCELLED or self.has_cancelled(self.running):
            stopper(reason)
        return True

    # ── perform ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def perform(self, since: float, seat: Seat) -> bool:  # noqa: C901, PLR0912, PLR0915 (each call costs every job)
        """
        Runs the jobs batch by batch, as long as the lease holds and they are as quick as was expected. What is left
        then goes back with the settle: it must not wait behind slow ones. Returns whether they were quick.

        Args:
            since: when its thread began to perform what it has in hand, be it of other shards (monotonic).
            seat: tells the supervisor, once the node is dead, which batch it was at.
        """
        lease, lock, epoch, now = self.lease, self._lock, self.epoch, clock.monotonic
        performer, window = self.performer, lease.runtime.settings.claim_window
        plain, perform, jobs, size = performer.plain, performer.perform, self._jobs, self._batch_size
        place, performs, failures, blank, tried = self._begin(seat), 0, None, None, -1
        begun, latest, floor = self._started, min(since + 2 * window, self.startable_until), min(window, SLOW)
        slow: list[tuple[int, int, float, float]] = []
        started = before = self.performing_since = now()
        is_late, variables, fork = started >= self.startable_until, lease.variables.copy(), forks.number
        takes_one = performer.takes_one
        while True:  # all that a job costs the node is in this loop, so what it could call is written out here
            with lock:
                first = self._done = self._started
                if performs and self.waits_since is None:
                    self.waits_since = before
                if failures is not None:
                    self._note(failures)
                last = first + size if size < self._until - first else self._until
                if is_late or first == last or lease.epoch != epoch or before >= lease.until:
                    lease.busy_seconds += before - started
                    self.performing_since = math.inf
                    break
                self._started = last
                self.running = batch = jobs[first:last]
                self.running_since = before
            place[0] = last
            # A job before it that was too quick to log anything leaves it its context: a blank job makes none.
            if blank is not None and batch[0].retry_count == tried and not blank.is_known:
                blank.jobs, blank.logged[0], blank.is_over, begun_at = batch, batch[0].id, False, before
            else:
                context, tried, begun_at = variables.run(begin, self), batch[0].retry_count, now()
            own = variables.copy()  # what a batch sets is its own
            if plain is None:
                failures = own.run(perform, batch)
            else:
                try:
                    if takes_one and size == 1:
                        done = own.run(plain, batch[0].id, batch[0].payloads)
                    else:
                        done = own.run(
                            plain,
                            {job.id: job.payloads for job in batch} if size > 1 else {batch[0].id: batch[0].payloads},
                        )
                    failures = None if done is None else own.run(performer.judge, batch, done)
                except BaseException as error:  # noqa: BLE001 (whatever user code raises fails its batch)
                    own.run(forks.check, fork, error)
                    failures = own.run(performer.failures, batch, error)
                if forks.number != fork:
                    own.run(forks.leave)
                context.is_over = True
                if context.is_known:
                    failures = context.end(failures)
            after, performs = now(), performs + 1
            if after - before >= floor:
                slow.append((first, last, before, after))
                is_late = after - before >= window
            blank = context if size == 1 and after - begun_at < BLANK else None
            is_late, before = is_late or after >= latest, after
        seat.end()
        if performs:
            self.running = ()  # until here it can't be taken back
            self._count(performs, begun, started, before, slow)
        return not is_late

    def take_seconds(self) -> float:
        """Seconds that its jobs have taken since it was last asked for them."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds

    def _count(
        self, performs: int, begun: int, since: float, ended: float, slow: list[tuple[int, int, float, float]]
    ) -> None:
        """Counts what has run, as `_ran` is told of it, in so many batches."""
        self._seconds += ended - since
        self.lease.claim_size.learn(performs, ended - since)
        if self.is_rated:
            self.note_started(self._jobs[begun : self._done])
        self.lease.times.note(self._claimed_at, self._heard_at, self._ran(begun, since, ended, slow))

    def _ran(self, begun: int, since: float, ended: float, slow: list[tuple[int, int, float, float]]) -> Iterator[Ran]:
        """
        Jobs from `begun` on, which have run one after the other from then to then: each slow batch alone, with its
        first job, the one behind its last, its start and end; the quick ones in between by their mean.
        """
        jobs, size = self._jobs, self._batch_size
        for first, last, started, after in (*slow, (self._done, self._done, ended, ended)):
            if first > begun:
                yield Ran(jobs[begun:first], (since + started) / 2, (started - since) / -((begun - first) // size))
            if last > first:
                yield Ran(jobs[first:last], started, after - started)
            begun, since = last, after

    def _begin(self, seat: Seat) -> Any:
        """Takes the seat. Returns where it says how far it is."""
        self._seat = seat
        self._sit_down(is_apart=not self.performer.is_in_node)
        return seat.place

    def _sit_down(self, *, is_apart: bool) -> None:
        """Names the claim of which something is performed, in the node or in a process of its own."""
        # Spoiled payloads are of jobs in between, so nobody could tell by its place in the claim which one runs.
        batch_size = 0 if self._news is not None and self._news.released else self._batch_size
        self._seat.begin(self.shard.prefix, self.number, len(self._jobs), batch_size, is_apart=is_apart)

    @property
    def next_id(self) -> str | None:
        """The job that is to run next, as long as that may start."""
        return None if self.is_lost or self._started >= self._end else self._jobs[self._started].id

    def move_into_node(self) -> None:
        """Notes that the batch is performed in the node after all, whose death is then held against it."""
        self._sit_down(is_apart=False)
        self._seat.place[0] = self._started

    def put_off(self, seconds: float) -> None:
        """Has what has not started go back, with the next settle, and stay there for as long."""
        self._put_off(set(self.ids), seconds)

    # ── settle ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _give_back(self) -> None:
        self._release(self._jobs[self._started : self._end])
        self._return_grants(self._jobs[self._started : self._end])
        self._end = self._until = self._started

    def _unstarted_jobs(self) -> Sequence[Job]:
        return self._jobs[self._started : self._end]

    def _take_out(self, ids: Collection[str], granted: int) -> Collection[str]:
        waiting = range(self._started, self._end)
        kept = [at for at in waiting if self._jobs[at].id not in ids]
        taken = {self._jobs[at].id for at in waiting if self._jobs[at].id in ids}
        self._jobs[self._started : self._end] = [self._jobs[at] for at in kept]
        self._end = self._started + len(kept)
        self._until = min(self._started + granted, self._end)
        return taken

    def _fail(self, job: Job, error: BaseException) -> Failures:
        variables = self.lease.variables.copy()
        context = variables.run(begin, self)  # hooks of it may be called in a helper
        failures = variables.run(self.performer.failures, [job], error)
        context.end(failures)
        return failures

    def _note(self, failures: Failures) -> None:
        super()._note(failures)
        if (failures.limited and self.is_rated) or len(self._tell().letters) >= MOST_LETTERS:
            self._until = self._started  # what was granted before the far side had enough; or a settle gets too large

    def _done_jobs(self) -> Sequence[Job]:
        return self._jobs[self._settled : self._done]

    def _count_done(self) -> int:
        return self._done

    def _forget_done(self, done: int) -> None:
        self._settled = done
