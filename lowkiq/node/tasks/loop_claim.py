"""LoopClaim: a claim whose batches run all at once, each as a task on the node's event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Protocol

from lowkiq import clock
from lowkiq.handlers.context import Progress, begin
from lowkiq.handlers.retries import Failures
from lowkiq.handlers.stop import Stop
from lowkiq.job import Job
from lowkiq.node.counts.times import Ran
from lowkiq.node.leases.claim_in_hand import ClaimInHand, Thread
from lowkiq.node.leases.lease import Lease
from lowkiq.queue.claims import Claim
from lowkiq.queue.shard import Shard
from lowkiq.shared_page import Seat
from lowkiq.worker import Worker


class Feeder(Thread, Protocol):
    """The thread that settles for the loop, as far as its claims need it."""

    @property
    def is_leaving(self) -> bool: ...

    def note_end(self, claim: LoopClaim) -> None:
        """A batch of it has ended."""

    def keep(self, claim: LoopClaim, id: str, checkpoint: bytes) -> Awaitable[None]:
        """Sends a checkpoint soon. Called on the loop."""


class LoopClaim(ClaimInHand):
    """Made by the feeder, which starts and settles it; its batches end on the loop."""

    thread: Feeder
    _runs_in_order = False

    def __init__(self, lease: Lease, claim: Claim, epoch: str, number: int, thread: Thread) -> None:
        super().__init__(lease, claim, epoch, number, thread)
        self.is_ended = not claim.jobs
        #: Jobs that were not started yet; then the batches that run; then the jobs that have ended.
        self._unstarted: list[Job] = list(claim.jobs)
        self._running: list[TaskBatch] = []
        self._ended: list[Job] = []
        #: Batches that have ended, and are not counted yet.
        self._uncounted: list[Ran] = []
        self._seat: Seat | None = None
        self._on_end: Callable[[], None] = lambda: None

    @property
    def in_hand(self) -> Sequence[ClaimInHand]:
        """Itself: before isolation.py it is a thread of its own."""
        return (self,)

    @property
    def is_leaving(self) -> bool:
        """True if its feeder is to begin nothing more."""
        return self.thread.is_leaving

    @property
    def has_unstarted(self) -> bool:
        """True until its tasks have begun."""
        return bool(self._unstarted)

    @property
    def batches(self) -> Sequence[TaskBatch]:
        """The batches that run now."""
        return tuple(self._running)

    @property
    def taken(self) -> int:
        """Places that it takes of its worker's concurrency."""
        return len(self._running) + -(-len(self._unstarted) // self._batch_size)

    def start(self, seat: Seat, on_end: Callable[[], None]) -> None:
        """Has its batches run. `on_end` is called, from any thread, when the last of them has ended."""
        self._seat, self._on_end = seat, on_end
        seat.begin(self.shard.prefix, self.number, len(self._jobs), 0)
        seat.place[0] = 1
        self.lease.performer.loop.loop.call_soon_threadsafe(self._spawn)

    def stop(self, reason: Stop) -> bool:
        """Cancels the tasks that run."""
        self.lease.performer.loop.loop.call_soon_threadsafe(self._stop, reason)
        return True

    # ── on the loop ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _spawn(self) -> None:
        with self._lock:
            # Another node may run them by now; and the cancelled are dropped on the way, the others come again.
            if self.is_lost or self.has_cancelled(self._unstarted):
                self._give_back()
            jobs, size = self._unstarted, self._batch_size
            self._running = [TaskBatch(self, jobs[at : at + size]) for at in range(0, len(jobs), size)]
            self._unstarted = []
            batches = tuple(self._running)
        for batch in batches:
            batch.start()
        if not batches:
            self._end()

    async def until_startable(self, jobs: Sequence[Job]) -> None:
        """Waits until these jobs may start, as to their rate."""
        granted = [self._granted[job.id] for job in jobs if job.id in self._granted]
        if (wait := max((row.at for row in granted), default=0.0) - clock.monotonic()) > 0:
            await asyncio.sleep(wait)

    def _stop(self, reason: Stop) -> None:
        for batch in self.batches:
            if reason is not Stop.CANCELLED or self.has_cancelled(batch.running):
                batch.stop(reason)

    def note_end(self, batch: TaskBatch, failures: Failures | None) -> None:
        now = clock.monotonic()
        with self._lock:
            self._running.remove(batch)
            self._ended += batch.running
            if not (failures and failures.unstarted):
                self._uncounted.append(Ran(batch.running, batch.running_since, now - batch.running_since))
            if failures is not None:
                self._note(failures)
            if self.waits_since is None:
                self.waits_since = now
            is_last = not self._running
        if is_last:
            self._end()
        else:
            self.thread.note_end(self)

    def _end(self) -> None:
        if self._seat:
            self._seat.end()
        self._on_end()
        self.is_ended = True
        self.thread.note_end(self)

    # ── settle ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _give_back(self) -> None:
        self.is_resting = True  # nor do tasks begin that were made already
        self._release(self._unstarted)
        self._return_grants(self._unstarted)
        self._unstarted = []

    def _unstarted_jobs(self) -> Sequence[Job]:
        return self._unstarted

    def _take_out(self, ids: Collection[str], granted: int) -> Collection[str]:  # noqa: ARG002 (all start at once)
        taken = {job.id for job in self._unstarted if job.id in ids}
        self._unstarted = [job for job in self._unstarted if job.id not in ids]
        return taken

    def _done_jobs(self) -> Sequence[Job]:
        return self._ended

    def _count_done(self) -> int:
        return len(self._ended)

    def _forget_done(self, done: int) -> None:
        del self._ended[:done]
        if self._uncounted:
            ran, self._uncounted = self._uncounted, []
            self.lease.times.note(self._claimed_at, self._heard_at, ran)


class TaskBatch:
    """A batch that runs as a task (context.py, Run)."""

    def __init__(self, claim: LoopClaim, jobs: list[Job]) -> None:
        self._claim = claim
        self.running: Sequence[Job] = jobs
        self.running_since = clock.monotonic()
        self.progress: Progress | None = None
        self._reason: Stop | None = None
        self._is_performing = True
        self._kept: list[asyncio.Future[None]] = []
        self.task: asyncio.Task[Failures | None] | None = None
        self.pid: int | None = None

    @property
    def epoch(self) -> str:
        return self._claim.epoch

    @property
    def node(self) -> str:
        return self._claim.node

    @property
    def worker(self) -> Worker:
        return self._claim.worker

    @property
    def shard(self) -> Shard:
        return self._claim.shard

    @property
    def is_lost(self) -> bool:
        return self._claim.is_lost

    def may_start(self) -> bool:
        return self._claim.may_start_now(self.running)

    @property
    def is_cancelled(self) -> bool:
        return self.to_stop_since is not None

    @property
    def to_stop_since(self) -> float | None:
        return self._claim.asked_to_stop(self.running, self.running_since)

    def report(self, progress: Progress) -> None:
        self.progress = progress

    def keep(self, id: str, checkpoint: bytes) -> Awaitable[None]:
        kept = asyncio.ensure_future(self._claim.thread.keep(self._claim, id, checkpoint))
        self._kept.append(kept)
        return asyncio.shield(kept)

    def start(self) -> None:
        """Has it run. Its end is noted however it comes: a task that is cancelled may never have begun."""
        variables = self._claim.lease.variables.copy()
        self.task = asyncio.get_running_loop().create_task(self._run(), context=variables)
        self.task.add_done_callback(self._note_end)

    def stop(self, reason: Stop) -> None:
        """Cancels it, unless it has just ended. Called on the loop."""
        if self._is_performing and self.task:
            self._reason = self._reason or reason
            self.task.cancel()

    async def _run(self) -> Failures | None:
        if self._claim.is_rated:
            await self._claim.until_startable(self.running)
        self.running_since = clock.monotonic()  # until here it waited for the loop
        if not self.may_start():
            return Failures(unstarted=[job.id for job in self.running])
        context = begin(self)
        if self._claim.is_rated:
            self._claim.note_started(self.running)
        performer, jobs = self._claim.lease.performer, list(self.running)
        timeout = self.worker.perform_timeout
        timer = asyncio.get_running_loop().call_later(timeout, self.stop, Stop.TIMED_OUT) if timeout else None
        try:
            failures = await performer.perform_async(jobs)
            self._is_performing = False
        except asyncio.CancelledError as error:
            self._is_performing = False
            if self._reason in {None, Stop.TIMED_OUT}:
                # Where it was awaiting is where the time has gone.
                told = performer.timed_out().with_traceback(error.__traceback__) if self._reason else error
                failures = await performer.failures_async(jobs, told)
            else:
                failures = self._cancelled()
        finally:
            context.end(None)
        if timer:
            timer.cancel()
        if self._kept:  # Redis has them before the outcome
            await asyncio.wait(self._kept)
        return failures

    def _cancelled(self) -> Failures:
        performer, jobs = self._claim.lease.performer, list(self.running)
        if self._reason is None and self._is_performing:  # nothing of it has run
            return Failures(unstarted=[job.id for job in jobs])
        if self._reason is None:
            return performer.failures(jobs, asyncio.CancelledError())
        return performer.stopped(jobs, self._reason, self._claim.cancelled)

    def _note_end(self, task: asyncio.Task[Failures | None]) -> None:
        if task.cancelled():  # before its first step, or by somebody else as it ended
            failures: Failures | None = self._cancelled()
        elif error := task.exception():
            failures = self._claim.lease.performer.failures(list(self.running), error)
        else:
            failures = task.result()
        self._claim.note_end(self, failures)
