"""Context: what a running job can know and tell of itself, by `lowkiq.current()`."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, NamedTuple, Protocol

from lowkiq.codec import dump_payload, encodable, load_payload
from lowkiq.errors import LowkiqError, short
from lowkiq.handlers.log_fields import Bound, bind, unbind
from lowkiq.handlers.retries import Failures
from lowkiq.handlers.start import Start
from lowkiq.handlers.started_threads import reach_threads
from lowkiq.job import EncodedJob, Job, Pushed
from lowkiq.queue.letters import MOST_LETTERS, push_letter
from lowkiq.queue.shard import Shard
from lowkiq.worker import Hold, Worker, held_pushes, running

#: Characters of what a job says of its progress.
NOTE_CHARS: Final = 200


class Progress:
    """A batch's own word on how far it is."""

    __slots__ = ("note", "share")

    def __init__(self, share: float, note: str) -> None:
        #: From 0 to 1.
        self.share = share
        self.note = note


class Run(Protocol):
    """A batch that runs, as far as a context asks."""

    @property
    def epoch(self) -> str: ...
    @property
    def node(self) -> str: ...
    @property
    def worker(self) -> Worker: ...
    @property
    def shard(self) -> Shard: ...
    @property
    def running(self) -> Sequence[Job]:
        """The jobs of the batch."""

    @property
    def is_lost(self) -> bool:
        """True if another node may run the shard by now."""

    @property
    def is_cancelled(self) -> bool:
        """True if a job of it was cancelled, or it takes too long."""

    def may_start(self) -> bool:
        """Returns whether it may begin at this moment; else its jobs go back."""

    def report(self, progress: Progress) -> None:
        """Tells people how far it is."""

    def keep(self, id: str, checkpoint: bytes) -> Awaitable[None]:
        """Has Redis keep a checkpoint of a job. Raises CheckpointFailed, here or when it is awaited."""


class Written(NamedTuple):
    """A job that is to be pushed once a batch is done; with `of`, once that job of it is."""

    batch: Sequence[Job]
    of: str | None
    worker: type[Worker]
    job: EncodedJob


class Done:
    """Awaitable for a call that was done at once."""

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield


class Context:
    """The batch that runs here. It is of use while perform runs, not longer."""

    __slots__ = ("_batches", "_bound", "_over", "_run", "_written")

    def __init__(self, run: Run) -> None:
        self._run = run
        self._bound: Bound | None = None
        #: What is to follow, as far as it was not taken up: each with the batch that has said so.
        self._written: list[Written] = []
        #: The batch that has ended last, with what follows from it.
        self._over: Sequence[Job] | None = None
        #: What batches were opened, each by whom.
        self._batches: list[tuple[Sequence[Job], bytes]] = []

    @property
    def jobs(self) -> Sequence[Job]:
        """The jobs of the batch."""
        return self._run.running

    @property
    def worker(self) -> Worker:
        """The instance whose perform runs."""
        return self._run.worker

    @property
    def queue(self) -> str:
        """Its queue's name."""
        return self._run.shard.queue

    @property
    def shard(self) -> int:
        """The shard's index."""
        return self._run.shard.index

    @property
    def node(self) -> str:
        """The name of the node, as `lowkiq nodes` has it."""
        return self._run.node

    @property
    def epoch(self) -> int:
        """
        The fencing token: it only rises from owner to owner of the shard. Store it beside what you write, and refuse a
        write with a lower one: then a process that outlived its lease can't harm.
        """
        return int(self._run.epoch)

    @property
    def attempt(self) -> int:
        """Which try this is, from 1; of a batch the highest."""
        return max(job.retry_count for job in self.jobs) + 2

    @property
    def tags(self) -> frozenset[str]:
        """Tags of its jobs, all together; of each, see `jobs`."""
        return frozenset(tag for job in self.jobs for tag in job.tags)

    @property
    def lease_lost(self) -> bool:
        """True if another node may run this shard by now: stop, and write nothing more."""
        return self._run.is_lost

    @property
    def cancelled(self) -> bool:
        """
        True once a job of the batch was cancelled (`actions.cancel`), or the batch has run for longer than
        `perform_timeout`: stop soon. Nothing else can stop a thread; async jobs are cancelled, processes killed.
        """
        return self._run.is_cancelled

    def progress(self, share: float, note: str = "") -> None:
        """
        Tells people how far the batch is: on the node's page, in `lowkiq nodes` and the API, with the next heartbeat.

        Args:
            share: from 0 to 1.
            note: a few words, such as "page 3 of 8"; cut at 200 characters.
        """
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1 or math.isnan(share):
            raise ValueError(f"progress is {short(share)}, it must be from 0 to 1")
        self._run.report(Progress(float(share), encodable(str(note)[:NOTE_CHARS])))

    def checkpoint(self, value: Any, *, id: str | int | None = None) -> Awaitable[None]:
        """
        Keeps how far a job has got, for whoever runs it again after a failure, a drain or a death: `checkpoint_value`.
        It goes when the job is done or buried. On a thread, and in a process of its own, Redis has it on return; on
        the event loop once what this returns has been awaited, else as soon as can be, and before the job's outcome.

        Args:
            value: anything JSON can hold; the last one counts.
            id: the job, in a batch of several.

        Raises:
            ValueError: there is no such job in the batch, or the value can't be kept.
            CheckpointFailed: Redis is away, or the job no longer ours.
        """
        return self._run.keep(self._job(id).id, dump_payload(value))

    @property
    def checkpoint_value(self) -> Any:
        """Value that an earlier run of the job has kept by `checkpoint`, else None; of several jobs, see each."""
        kept = self._job(None).checkpoint
        return None if kept is None else load_payload(kept)

    def then(self, worker: type[Worker[Any]], jobs: Iterable[Any], *, of: str | int | None = None) -> None:
        """
        Has jobs be pushed if, and only if, what runs is done: they are written in the script that settles it, and each
        arrives exactly once, those for one id in their order, whatever is killed when. Redis has them only then.

        Args:
            worker: whose jobs they are, in this queue or another.
            jobs: as `perform_async` takes them; a `delay` counts from when they arrive.
            of: the job of the batch from which they follow; None: from all of it, so if any of it fails they don't.

        Raises:
            InvalidJob: names the job and the field.
            ValueError: there is no such job in the batch.
            LowkiqError: more than 1,000 jobs would follow from the batch; or a hook calls this, such as
                `retries_exhausted`: nothing follows from what has failed, and a plain push there takes place at once.
        """
        if _hooks.get():
            raise LowkiqError("nothing follows from a job that has failed: in a hook push what is to come of it")
        named = None if of is None else self._job(of).id
        self._hold(worker, worker.registered_app().validated(worker, jobs), named)

    def _hold(self, worker: type[Worker[Any]], jobs: Sequence[EncodedJob], of: str | None = None) -> Pushed:
        """Keeps validated jobs until what runs is done. Nothing is in Redis yet, so none is new or merged."""
        batch = self._run.running
        if sum(row.batch is batch for row in self._written) + len(jobs) > MOST_LETTERS:
            raise LowkiqError(
                f"more than {MOST_LETTERS:,} jobs would follow from one batch: push a job that pushes them, in parts"
            )
        self._written += [Written(batch, of, worker, job) for job in jobs]
        return Pushed(0, 0)

    def hold_of_batch(self) -> Hold:
        """What takes the pushes of threads that this batch has started. Raises LowkiqError once it is over."""
        batch = self._run.running

        def hold(worker: type[Worker[Any]], jobs: Sequence[EncodedJob]) -> Pushed:
            if self._run.running is not batch or self._over is batch:
                raise LowkiqError(
                    'a thread has pushed once the job was over that has started it, and has pushes="on_success": wait '
                    "for it inside perform; or start it as one of no job: contextvars.Context().run(thread.start)"
                )
            return self._hold(worker, jobs)

        return hold

    def number_of_batch(self, what: bytes) -> int:
        """How many batches that are called so this run has opened before."""
        running = self._run.running
        self._batches = [*(row for row in self._batches if row[0] is running), (running, what)]
        return sum(row[1] == what for row in self._batches) - 1

    def _take_letters(self, failures: Failures | None) -> Failures | None:
        """The outcome of the batch that has ended, with what follows from it."""
        self._over = self._run.running
        if not self._written:
            return failures
        batch = self._run.running
        # A thread that outlives its batch may write on: that is of no batch any more.
        rows = [row for row in self._written if row.batch is batch]
        self._written.clear()
        undone = failures.ids if failures else frozenset()
        letters = []
        for row in rows:
            if row.of not in undone and (row.of is not None or not undone):
                of = batch[0].id if row.of is None else row.of
                letters.append((of, push_letter(of, row.worker.queue_name, row.worker.shards_count, row.job)))
        return (failures or Failures())._replace(letters=letters) if letters else failures

    def _job(self, id: str | int | None) -> Job:
        if id is None and len(self.jobs) == 1:
            return self.jobs[0]
        for job in self.jobs:
            if job.id == str(id):
                return job
        what = "name one of them: checkpoint(value, id=...)" if id is None else f"{short(id)} is none of them"
        raise ValueError(f"the batch has {len(self.jobs)} jobs, {what}")


_running: ContextVar[Context | None] = running
#: True inside hooks, which are called once perform has failed.
_hooks: ContextVar[bool] = ContextVar("lowkiq_hooks", default=False)


def current() -> Context:
    """
    The batch that runs here, as a context variable tells: what it is (worker, queue, shard, epoch, attempt), whether to
    go on (lease_lost, cancelled), what it can tell (progress, checkpoint), and what is to follow (then).

    Raises:
        LowkiqError: no job runs here.
    """
    context = _running.get()
    if context is None:
        raise LowkiqError("lowkiq.current() was called outside perform")
    return context


def shard_here() -> int | None:
    """The index of the shard of the batch that runs here, if one does."""
    context = _running.get()
    return None if context is None else context.shard


def start_here() -> Start:
    """The last look before the batch that is entered here begins."""
    context = _running.get()
    return Start((lambda: True) if context is None else context._run.may_start)


def running_here() -> Run:
    """The batch that runs here, as the node knows it. Raises LowkiqError."""
    return current()._run


@contextmanager
def in_hooks() -> Iterator[None]:
    """Has the pushes of hooks inside take place at once: they are what is to come of a failure."""
    held, inside = held_pushes.set(None), _hooks.set(True)
    try:
        yield
    finally:
        held_pushes.reset(held)
        _hooks.reset(inside)


def with_letters(failures: Failures | None) -> Failures | None:
    """The outcome of the batch that has ended here, with what follows from it."""
    context = _running.get()
    return failures if context is None else context._take_letters(failures)


def enter(context: Context | None) -> Sequence[Written]:
    """
    Sets what runs on this thread, or in this task, and what the log says of it (log_fields.py). Returns where it keeps
    what is to follow.
    """
    before = _running.get()
    if before is not None and before._bound is not None:
        unbind(before._bound)
        before._bound = None
    _running.set(context)
    holds = context is not None and context._run.worker.pushes == "on_success"
    held_pushes.set(context._hold if context is not None and holds else None)
    if holds:
        reach_threads()
    if context is not None:
        run = context._run
        context._bound = bind(run.shard.queue, run.shard.index, run.node, run.running)
    return () if context is None else context._written


def enter_anew(context: Context) -> None:
    """Sets what runs in a copy of a batch's own context of variables: that batch runs on, so nothing of it ends."""
    _running.set(None)
    enter(context)
