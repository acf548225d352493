"""Context: what a running job can know of itself, by `lowkiq.current()`."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Protocol

from lowkiq.errors import LowkiqError
from lowkiq.job import Job
from lowkiq.queue.shard import Shard
from lowkiq.worker import Worker


class Run(Protocol):
    """The claim that a thread performs, as far as a context asks."""

    epoch: str
    running: Sequence[Job]
    worker: Worker
    shard: Shard

    @property
    def is_lost(self) -> bool: ...


class Context:
    """The job that a thread performs. It is of use while perform runs, not longer."""

    __slots__ = ("_run",)

    def __init__(self, run: Run) -> None:
        self._run = run

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
    def lease_lost(self) -> bool:
        """True if another node may run this shard by now: stop, and write nothing more."""
        return self._run.is_lost


_running: ContextVar[Context | None] = ContextVar("lowkiq_running", default=None)


def current() -> Context:
    """
    The job that runs here, as a context variable tells: worker, queue, shard, epoch, attempt, lease_lost.

    Raises:
        LowkiqError: no job runs here.
    """
    context = _running.get()
    if context is None:
        raise LowkiqError("lowkiq.current() was called outside perform")
    return context


def enter(context: Context | None) -> None:
    """Sets what runs on this thread."""
    _running.set(context)
