"""FakeNode: runs what is due as a node does: claims it, has its performer perform it, and settles what became of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Collection, Iterator, Mapping, Sequence
from contextvars import copy_context
from typing import Any, Final, NamedTuple, TypeAlias

from lowkiq import clock
from lowkiq.errors import CheckpointFailed, LowkiqError
from lowkiq.handlers.context import Done, Progress, begin
from lowkiq.handlers.log_fields import bind_shard
from lowkiq.handlers.loop_thread import LoopThread
from lowkiq.handlers.performer import Performer
from lowkiq.handlers.retries import Failures, Retries
from lowkiq.job import Job
from lowkiq.node.leases import checkpoints
from lowkiq.queue.shard import Outcome as Settlement
from lowkiq.queue.shard import Shard, Snoozed
from lowkiq.registration import made
from lowkiq.settings import Settings
from lowkiq.testing.clock import Clock
from lowkiq.testing.following import Following
from lowkiq.testing.model.shard_state import SECOND
from lowkiq.testing.outcome import Outcome, outcomes_of
from lowkiq.testing.queues import FakeQueue, Taken
from lowkiq.testing.rates import FakeGate
from lowkiq.testing.recurring import FakeEntries
from lowkiq.worker import Worker

#: The queues whose jobs run; None: all.
Only: TypeAlias = Collection[str] | None

#: Batches of one drain, at most: a job that pushes itself, or snoozes for no time, would go on for ever.
MOST_BATCHES: Final = 100_000
#: Microseconds within which a job is as good as due: those that a batch puts back at once are due one after the other.
MOMENT: Final = 1_000


class _Witness(Retries):
    """Decides as ever, and remembers what was raised."""

    raised: Mapping[str, BaseException | str] = {}

    def decide(self, batch: list[Job], errors: Mapping[str, BaseException | str]) -> Failures:
        self.raised = dict(errors)
        return super().decide(batch, errors)


class FakePerformer(Performer):
    """A node's, which tells what its batches have raised. What would stop a node is kept for the test."""

    def __init__(self, worker: Worker[Any], settings: Settings, loop: LoopThread) -> None:
        self.settings = settings
        self._stopping: list[BaseException] = []
        super().__init__(worker, settings, self._stopping.append, loop)
        self._witness = _Witness(worker, settings, self._stopping.append, loop, self.ledger)
        self._retries = self._witness

    def take_raised(self) -> Mapping[str, BaseException | str]:
        """Gives, by ids, what the last batch has raised."""
        raised, self._witness.raised = self._witness.raised, {}
        return raised

    def raise_fatal(self) -> None:
        """Raises what would have stopped a node, such as a KeyboardInterrupt."""
        if self._stopping:
            raise self._stopping.pop(0)

    async def perform_awaited(self, batch: list[Job]) -> Failures | None:
        """Performs a batch as `perform` does, on the loop that runs here."""
        if not self.is_async:
            return self.perform(batch)
        try:
            return await asyncio.wait_for(self.perform_async(batch), self.worker.perform_timeout)
        except TimeoutError:
            return await self.failures_async(batch, self.timed_out())


class Batch(NamedTuple):
    """A batch that runs (context.py, Run)."""

    queue: FakeQueue
    taken: Taken
    performer: FakePerformer
    #: When it was claimed, by the fake's clock, and when it began (monotonic).
    at: int
    since: float

    @property
    def running(self) -> Sequence[Job]:
        return self.taken.claim.jobs

    @property
    def node(self) -> str:
        return "testing"

    @property
    def epoch(self) -> str:
        return str(self.taken.epoch)

    @property
    def worker(self) -> Worker[Any]:
        return self.performer.worker

    @property
    def shard(self) -> Shard:
        return self.queue.shards[self.taken.at]

    @property
    def is_lost(self) -> bool:
        return False

    @property
    def is_cancelled(self) -> bool:
        timeout = self.worker.perform_timeout
        is_late = timeout is not None and clock.monotonic() >= self.since + timeout
        return is_late or bool(self.queue.cancelled(self.taken))

    def may_start(self) -> bool:
        return True

    def report(self, progress: Progress) -> None:
        """Does nothing: nobody looks."""

    def keep(self, id: str, checkpoint: bytes) -> Awaitable[None]:
        checkpoints.check(checkpoint, self.performer.settings)
        if not self.queue.checkpoint(self.taken, id, checkpoint):
            raise CheckpointFailed("this run is over")
        return Done()


class FakeNode:
    """Runs the jobs of some queues, a batch at a time."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        queues: Mapping[str, FakeQueue],
        following: Following,
        recurring: FakeEntries,
    ) -> None:
        self._settings, self._clock, self._queues = settings, clock, queues
        self._following, self._recurring = following, recurring
        self._performers: dict[tuple[str, LoopThread], FakePerformer] = {}
        self._workers: dict[str, Worker[Any]] = {}
        self._gates: dict[str, FakeGate] = {}
        #: Each is used by the thread of the one before it: a coroutine may wait for what another one does.
        self._loops = [LoopThread("lowkiq-testing")]

    def drain(self, until: int, only: Only = None) -> Iterator[Outcome]:
        """Runs what is due until then, in order of time, and gives what became of it."""
        for batch in self._batches(until, only):
            yield from self._settle(batch, copy_context().run(_perform, batch))

    async def adrain(self, until: int, only: Only = None) -> list[Outcome]:
        """The same; coroutines run on the loop that runs here."""
        outcomes: list[Outcome] = []
        for batch in self._batches(until, only):
            outcomes += self._settle(batch, await asyncio.create_task(_perform_awaited(batch)))
        return outcomes

    def close(self) -> None:
        """Ends its threads."""
        for loop in self._loops:
            loop.close()

    def _batches(self, until: int, only: Only) -> Iterator[Batch]:
        claims = 0
        while found := self._next(until, only):
            queue, due, index = found
            self._clock.move_to(due)
            claims += 1
            if claims > MOST_BATCHES:
                raise LowkiqError(
                    f"{queue.worker.queue_name} has run {MOST_BATCHES:,} batches and still has jobs due: does a job "
                    "push itself, or come back at once?"
                )
            if batch := self._claim(queue, index):
                yield batch
        self._clock.move_to(until)

    def _next(self, until: int, only: Only) -> tuple[FakeQueue, int, int] | None:
        self._following.let_go()
        found = self._first_due(until, only)
        while at := self._recurring.fire(min(until, found[1] if found else until)):
            self._clock.move_to(at)
            found = self._first_due(until, only)
        return found

    def _first_due(self, until: int, only: Only) -> tuple[FakeQueue, int, int] | None:
        queues = [queue for name, queue in [*self._queues.items()] if only is None or name in only]
        found = [(*next_due, queue) for queue in queues if (next_due := queue.next_due())]
        first = min(found, key=lambda one: (*one[:2], one[2].worker.queue_name), default=None)
        if first is None or first[0] > max(until, self._clock.now) + MOMENT:
            return None
        due, index, queue = first
        return queue, due, index

    def _claim(self, queue: FakeQueue, index: int) -> Batch | None:
        performer = self._performer(queue.worker)
        taken = queue.claim(
            index, queue.worker.batch_size, performer.max_payloads, performer.load, performer.check_id
        )  # fmt: skip
        if queue.worker.rate:
            self._hold_back(queue, taken, performer)
        batch = Batch(queue, taken, performer, self._clock.now, clock.monotonic())
        if taken.claim.jobs:
            return batch
        self._settle(batch, None)
        return None

    def _hold_back(self, queue: FakeQueue, taken: Taken, performer: FakePerformer) -> None:
        """Puts back what its rate does not let start."""
        jobs, rate = taken.claim.jobs, queue.worker.rate
        if rate is None or not jobs:
            return
        waits, errors = self._gates[queue.worker.queue_name].waits(rate, jobs, self._clock.now)
        failures = [performer.failures([job], errors[job.id]) for job in jobs if job.id in errors]
        jobs[:] = [job for job in jobs if job.id not in waits and job.id not in errors]
        queue.settle(
            taken,
            Settlement(
                failed=[row for found in failures for row in found.failed],
                exhausted=[row for found in failures for row in found.exhausted],
                limited=[Snoozed(id, wait, "limited") for id, wait in waits.items()],
            ),
        )

    def _settle(self, batch: Batch, failures: Failures | None) -> list[Outcome]:
        jobs, found, rate = batch.running, failures or Failures(), batch.worker.rate
        if rate and found.limited:
            self._gates[batch.shard.queue].rest(rate, jobs, found.limited, self._clock.now)
        spoiled, cancelled = batch.taken.claim.spoiled, batch.queue.cancelled(batch.taken)
        batch.queue.settle(
            batch.taken,
            Settlement(
                failed=found.failed,
                exhausted=found.exhausted,
                snoozed=found.snoozed,
                spoiled=spoiled,
                # What else the ids of spoiled payloads hold goes back.
                released=[*found.released, *dict.fromkeys(row.id for row in spoiled)],
                stopped=found.released,
                rest="ack",
            ),
        )
        self._following.follow(found.letters)
        raised = batch.performer.take_raised()
        outcomes = outcomes_of(batch.shard.queue, jobs, found, raised, batch.at / SECOND, cancelled)
        batch.performer.raise_fatal()
        return outcomes

    def _performer(self, worker: type[Worker[Any]]) -> FakePerformer:
        loop, queue = self._loop(), worker.queue_name
        known = self._performers.get((queue, loop))
        if known is None:
            if queue not in self._workers:
                self._workers[queue], self._gates[queue] = made(worker), FakeGate(worker.codec)
            known = self._performers[queue, loop] = FakePerformer(self._workers[queue], self._settings, loop)
        return known

    def _loop(self) -> LoopThread:
        """The loop where coroutines run while this thread waits for them."""
        here = threading.current_thread()
        busy = next((number for number, loop in enumerate(self._loops) if loop.thread is here), -1)
        if busy + 1 == len(self._loops):
            self._loops.append(LoopThread(f"lowkiq-testing-{busy + 1}"))
        return self._loops[busy + 1]


def _perform(batch: Batch) -> Failures | None:
    """Performs a batch, in a copy of the context: it may be pushed by another one, which runs on."""
    bind_shard(batch.shard, batch.node)
    begin(batch)
    return batch.performer.perform([*batch.running])


async def _perform_awaited(batch: Batch) -> Failures | None:
    """The same as a task, whose context is a copy, too."""
    bind_shard(batch.shard, batch.node)
    begin(batch)
    return await batch.performer.perform_awaited([*batch.running])
