"""What a running job can know of itself: `lowkiq.current()`."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from lowkiq.errors import LowkiqError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lowkiq.job import Job
    from lowkiq.node.shard_handler import ShardHandler
    from lowkiq.worker import Worker


class Context:
    """What a thread performs. It is of use while perform runs, not longer."""

    __slots__ = ("_epoch", "_handler")

    def __init__(self, handler: ShardHandler, epoch: str) -> None:
        self._handler = handler
        self._epoch = epoch

    @property
    def jobs(self) -> Sequence[Job]:
        """The jobs of the batch."""
        return self._handler.running

    @property
    def worker(self) -> Worker:
        """The instance whose perform runs."""
        return self._handler.worker

    @property
    def queue(self) -> str:
        """Its queue's name."""
        return self._handler.shard.queue

    @property
    def shard(self) -> int:
        """The shard's index."""
        return self._handler.shard.index

    @property
    def epoch(self) -> int:
        """
        The fencing token: it only rises from owner to owner of the shard. Store it beside what you write, and refuse a
        write with a lower one: then a process that outlived its lease can't harm.
        """
        return int(self._epoch)

    @property
    def attempt(self) -> int:
        """Which try this is, from 1; of a batch the highest."""
        return max(job.retry_count for job in self.jobs) + 2

    @property
    def lease_lost(self) -> bool:
        """Whether another node may run this shard by now: stop, and write nothing more."""
        return not self._handler.holds(self._epoch)


_running = threading.local()


def current() -> Context:
    """
    What runs on this thread: worker, queue, shard, epoch, attempt, lease_lost.

    Raises:
        LowkiqError: no job runs on this thread.
    """
    context: Context | None = getattr(_running, "context", None)
    if context is None:
        raise LowkiqError("lowkiq.current() was called outside perform")
    return context


def enter(context: Context | None) -> None:
    """Says what runs on this thread."""
    _running.context = context
