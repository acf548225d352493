"""Batch: jobs of any workers, and the one that runs after all of them."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Protocol, Self

import msgspec

from lowkiq.after import MOST_AFTER, OPEN, word_of
from lowkiq.errors import LowkiqError, short
from lowkiq.job import EncodedJob, NewJob, Pushed
from lowkiq.types.variables import P
from lowkiq.worker import Target, Worker, held_pushes, running


class Producer(Protocol):
    """Where the job is queued that runs at the end."""

    def push(self, jobs: Sequence[EncodedJob]) -> Pushed: ...
    def wait(self, job: EncodedJob, batch: str, others: Sequence[str], *, is_all: bool) -> bool: ...


class Pusher(Protocol):
    """The application, as far as a batch needs it."""

    def push(self, worker: Target[P], jobs: Iterable[NewJob[P]]) -> Pushed: ...
    async def apush(self, worker: Target[P], jobs: Iterable[NewJob[P]]) -> Pushed: ...
    def name_of(self, worker: Any, id: Any) -> str: ...


class Batch:
    """
    The job at the end is queued first, and waits; what is pushed inside runs meanwhile. It waits for every id that was
    pushed, once the block has ended; and for every batch that is open with it at the end, so several may be.

    A block that raises, or whose process dies, leaves its batch open. The next try of the job that has opened it goes
    on with it, as does one with the same name; else `actions.stop_waiting` has the job at the end run, and a delete
    ends it.

    Inside a perform whose pushes wait for its success (`pushes="on_success"`) all of it does: nothing is queued before.
    """

    def __init__(
        self, app: Pusher, producer: Producer, worker: type[Worker[Any]], on_done: EncodedJob, name: str | None
    ) -> None:
        self._app = app
        self._producer = producer
        self._worker = worker
        self._on_done = on_done
        self._name = f"{OPEN}:{name or _name_here(worker.queue_name, on_done)}"
        self._names: dict[str, None] = {}
        self._is_open = self._is_ending = False
        self._hold = held_pushes.get()

    def push(self, worker: Target[P], jobs: Iterable[NewJob[P]]) -> Pushed:
        """Queues jobs, as `perform_async` does, after which the job at the end is to run. Errors are those of push."""
        batch = self._listed(jobs)
        pushed = self._app.push(worker, batch)
        self._note(worker, batch)
        return pushed

    async def apush(self, worker: Target[P], jobs: Iterable[NewJob[P]]) -> Pushed:
        """The same, awaited."""
        batch = self._listed(jobs)
        pushed = await self._app.apush(worker, batch)
        self._note(worker, batch)
        return pushed

    def __enter__(self) -> Self:
        self._hold = held_pushes.get()
        if self._hold is None:
            self._producer.push([self._after([self._name])])
        self._is_open = True
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._is_open = False
        if kind is None:
            self._close()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        await asyncio.to_thread(self.__exit__, kind, error, trace)

    def _close(self) -> None:
        names = list(self._names)
        if self._hold is not None:
            self._follow(self._hold, names)
            return
        for at in range(0, max(len(names), 1), MOST_AFTER):
            if not self._producer.wait(self._on_done, self._name, names[at : at + MOST_AFTER], is_all=False):
                if self._is_ending:  # an earlier try has ended it, whose reply was lost
                    return
                id = short(self._on_done.id.decode(errors="replace"))
                raise LowkiqError(
                    f"{id} of queue {self._worker.queue_name} waits for its batch no more: somebody has had it run or "
                    f"deleted it. Push it with after=[…], or once what was pushed in the batch has run"
                )
        # It waits just now: what this says when it is repeated, after its reply was lost, is no news.
        self._is_ending = True
        self._producer.wait(self._on_done, self._name, [], is_all=True)

    def _follow(self, hold: Any, names: Sequence[str]) -> None:
        """Has the job at the end follow behind what was pushed, where all of it is held until the job here is done."""
        if len(names) > MOST_AFTER:
            raise LowkiqError(
                f'a batch inside a worker with pushes="on_success" has {len(names):,} jobs, it may have {MOST_AFTER}: '
                'open larger ones in a worker with pushes="now"'
            )
        hold(self._worker, [self._after(names)])

    def _after(self, names: Sequence[str]) -> EncodedJob:
        return msgspec.structs.replace(self._on_done, after=word_of(names) + self._on_done.after)

    def _listed(self, jobs: Any) -> list[NewJob]:
        if not self._is_open:
            raise LowkiqError("the batch is over: push inside `with app.batch(…) as batch`")
        # What is no list of jobs the push refuses.
        return list(jobs) if isinstance(jobs, Iterable) and not isinstance(jobs, dict | str | bytes) else jobs

    def _note(self, worker: Target[P], jobs: Iterable[NewJob[P]]) -> None:
        self._names.update((self._app.name_of(worker, job["id"]), None) for job in jobs)


def _name_here(queue: str, on_done: EncodedJob) -> str:
    """
    The name of a batch that was given none. Of one in a job it is the same in its next try: that never runs beside this
    one, and goes on with what this one has left open.
    """
    context = running.get()
    if context is None:
        return secrets.token_hex(8)
    what = "\n".join([context.queue, *(job.id for job in context.jobs), queue]).encode("utf-8", "surrogateescape")
    number = context.number_of_batch(what + on_done.id)
    return hashlib.sha256(b"%b\n%b\n%d" % (what, on_done.id, number)).hexdigest()[:16]
