"""Context: what a running job can know and tell of itself, by `lowkiq.current()`."""

from __future__ import annotations

import math
import threading
from collections.abc import Awaitable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, NamedTuple, Protocol

from lowkiq.codec import dump_payload, encodable, load_payload
from lowkiq.errors import CheckpointFailed, LowkiqError, short
from lowkiq.handlers import forks, log_fields
from lowkiq.handlers.retries import Failures
from lowkiq.handlers.start import Start
from lowkiq.handlers.started_threads import reach_threads
from lowkiq.job import EncodedJob, Job, NewJob, Pushed
from lowkiq.queue.letters import MOST_LETTERS, push_letter
from lowkiq.queue.shard import Shard
from lowkiq.types.variables import P
from lowkiq.worker import Target, Worker, held_pushes, running, worker_of

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

    of: str | None
    worker: type[Worker]
    job: EncodedJob


class Done:
    """Awaitable for a call that was done at once."""

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield


class Context:
    """
    The batch that runs here. It is of use while perform runs, not longer: what it is can be read afterwards, too, but
    what it would tell, keep or have follow is refused, and so it is in a process that perform has forked.
    """

    __slots__ = ("_batches", "_ending", "_fork", "_run", "_written", "is_known", "is_over", "jobs", "logged")

    def __init__(self, run: Run) -> None:
        self._run = run
        self._fork = forks.number
        #: The jobs of the batch.
        self.jobs = run.running
        #: The ids that the log has of them.
        self.logged = log_fields.bind_batch(self.jobs)
        #: Held while something is added to what is to follow, and while the batch ends: what comes later is refused.
        self._ending = threading.Lock()
        self._written: list[Written] = []
        #: What batches were opened.
        self._batches: list[bytes] = []
        #: True once somebody has got hold of it, who may keep it: then no other batch may have it.
        self.is_known = False
        #: True once the batch has ended.
        self.is_over = False

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
        """True if another node may run this shard by now, and once the batch is over: stop, and write nothing more."""
        self._require_own_process("lease_lost")
        return self.is_over or self._run.is_lost

    @property
    def cancelled(self) -> bool:
        """
        True once a job of the batch was cancelled (`actions.cancel`), or the batch has run for longer than
        `perform_timeout`, or is over: stop soon. Nothing else can stop a thread; async jobs are cancelled, processes
        killed.
        """
        self._require_own_process("cancelled")
        return self.is_over or self._run.is_cancelled

    def progress(self, share: float, note: str = "") -> None:
        """
        Tells people how far the batch is: on the node's page, in `lowkiq nodes` and the API, with the next heartbeat.

        Args:
            share: from 0 to 1.
            note: a few words, such as "page 3 of 8"; cut at 200 characters.

        Raises:
            LowkiqError: the batch is over, or this is a process that perform has forked.
        """
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1 or math.isnan(share):
            raise ValueError(f"progress is {short(share)}, it must be from 0 to 1")
        self._require_running("progress")
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
            CheckpointFailed: Redis is away, or the job no longer ours, be it that the batch is over; or this is a
                process that perform has forked.
        """
        self._require_running("checkpoint", CheckpointFailed)
        return self._run.keep(self._job(id).id, dump_payload(value))

    @property
    def checkpoint_value(self) -> Any:
        """Value that an earlier run of the job has kept by `checkpoint`, else None; of several jobs, see each."""
        kept = self._job(None).checkpoint
        return None if kept is None else load_payload(kept)

    def then(self, worker: Target[P], jobs: Iterable[NewJob[P]], *, of: str | int | None = None) -> None:
        """
        Has jobs be pushed if, and only if, what runs is done: they are written in the script that settles it, and each
        arrives exactly once, those for one id in their order, whatever is killed when. Redis has them only then.

        Args:
            worker: whose jobs they are, in this queue or another; or a task of lowkiq.celery.
            jobs: as `perform_async` takes them, such as `job` makes; a `delay` counts from when they arrive.
            of: the job of the batch from which they follow; None: from all of it, so if any of it fails they don't.

        Raises:
            InvalidJob: names the job and the field.
            ValueError: there is no such job in the batch.
            LowkiqError: more than 1,000 jobs would follow from the batch; it is over; this is a process that perform
                has forked; or a hook calls this, such as `retries_exhausted`: nothing follows from what has failed, and
                a plain push there takes place at once.
        """
        if _hooks.get():
            raise LowkiqError("nothing follows from a job that has failed: in a hook push what is to come of it")
        named = None if of is None else self._job(of).id
        known = worker_of(worker)
        self._write(known, known.registered_app().validated(known, jobs), named, "then")

    def hold(self, worker: type[Worker[Any]], jobs: Sequence[EncodedJob]) -> Pushed:
        """
        Keeps a push until what runs is done, be it one of a thread or a task that the batch has started. Nothing is in
        Redis yet, so none is new or merged. Raises LowkiqError.
        """
        self._write(worker, jobs, None, "push")
        return Pushed(0, 0)

    def _write(self, worker: type[Worker[Any]], jobs: Sequence[EncodedJob], of: str | None, what: str) -> None:
        self._require_own_process(what)
        with self._ending:
            self._require_running(what)
            if len(self._written) + len(jobs) > MOST_LETTERS:
                most = f"more than {MOST_LETTERS:,} jobs would follow from one batch"
                raise LowkiqError(f"{most}: push a job that pushes them, in parts")
            self._written += [Written(of, worker, job) for job in jobs]

    def _require_running(self, what: str, error: type[LowkiqError] = LowkiqError) -> None:
        self._require_own_process(what, error)
        if self.is_over:
            ids = ", ".join(short(job.id) for job in self.jobs[: log_fields.MOST_IDS])
            raise error(_OVER.get(what, _OVER_ELSE).format(what=what, ids=ids))

    def _require_own_process(self, what: str, error: type[LowkiqError] = LowkiqError) -> None:
        if forks.number != self._fork:
            raise error(_FORKED.get(what, _FORKED_ELSE).format(what=what))

    def number_of_batch(self, what: bytes) -> int:
        """How many batches that are called so this run has opened before."""
        self.is_known = True
        self._batches.append(what)
        return self._batches.count(what) - 1

    def end(self, failures: Failures | None) -> Failures | None:
        """Ends the batch. Returns its outcome with what follows from it."""
        forks.check(self._fork)  # what other threads had locked is locked for ever in a copy of them
        with self._ending:
            self.is_over = True
            rows, self._written = self._written, []
        undone = failures.ids if failures else frozenset()
        letters = []
        for row in rows:
            if row.of not in undone and (row.of is not None or not undone):
                of = self.jobs[0].id if row.of is None else row.of
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


#: Why something is refused once its batch is over, and what to do.
_OVER: Final = {
    "push": "a thread or a task has pushed once the job was over that has started it (of {ids}), and has "
    'pushes="on_success": wait for it inside perform; or start it as one of no job: '
    "contextvars.Context().run(thread.start)",
}
_OVER_ELSE: Final = (
    "{what} was called once the job was over (of {ids}): a context is of use while its perform runs, so wait there for "
    "what needs it, and call lowkiq.current() anew in each run"
)
#: The same in a process that it has forked.
_FORKED: Final = {
    "push": 'a process that a job with pushes="on_success" has forked can\'t push with it: return to the job what is '
    'to be pushed; or start the process with multiprocessing.get_context("spawn"), then it pushes immediately',
}
_FORKED_ELSE: Final = (
    "{what} was called in a process that the job has forked: only the process that runs a job can speak for it, so "
    "tell that one by a pipe or a queue"
)

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
    context.is_known = True
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
    return failures if context is None else context.end(failures)


def begin(run: Run) -> Context:
    """
    Has a batch be what runs here, and what the log tells of (log_fields.py). It is so for what is called in the same
    context of variables, or in a copy, so nobody has to undo it.
    """
    context = Context(run)
    _running.set(context)
    if holds := run.worker.pushes == "on_success":
        reach_threads()
    context.is_known = holds
    held_pushes.set(context.hold if holds else None)
    return context
