"""Batch: jobs of any workers, and the one that runs after all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Protocol, Self

import msgspec

from lowkiq.after import MOST_AFTER, OPEN, word_of
from lowkiq.errors import LowkiqError
from lowkiq.job import EncodedJob, NewJob, Pushed
from lowkiq.worker import Worker


class Producer(Protocol):
    """Where the job is queued that runs at the end."""

    def push(self, jobs: Sequence[EncodedJob]) -> Pushed: ...
    def wait(self, job: EncodedJob, others: Sequence[str], *, is_all: bool) -> bool: ...


class Pusher(Protocol):
    """The application, as far as a batch needs it."""

    def push(self, worker: type[Worker[Any]], jobs: Iterable[NewJob]) -> Pushed: ...
    async def apush(self, worker: type[Worker[Any]], jobs: Iterable[NewJob]) -> Pushed: ...
    def name_of(self, worker: Any, id: Any) -> str: ...


class Batch:
    """
    The job at the end is queued first, and waits; what is pushed inside runs meanwhile. It waits for every id that was
    pushed, once the block has ended. A block that raises, or whose process dies, leaves it waiting as open: a batch
    with the same job at the end goes on with it, `actions.stop_waiting` has it run, a delete ends it.
    """

    def __init__(self, app: Pusher, producer: Producer, on_done: EncodedJob) -> None:
        self._app = app
        self._producer = producer
        self._on_done = on_done
        self._names: dict[str, None] = {}
        self._is_open = False

    def push(self, worker: type[Worker[Any]], jobs: Iterable[NewJob]) -> Pushed:
        """Queues jobs, as `perform_async` does, after which the job at the end is to run. Errors are those of push."""
        batch = self._listed(jobs)
        pushed = self._app.push(worker, batch)
        self._note(worker, batch)
        return pushed

    async def apush(self, worker: type[Worker[Any]], jobs: Iterable[NewJob]) -> Pushed:
        """The same, awaited."""
        batch = self._listed(jobs)
        pushed = await self._app.apush(worker, batch)
        self._note(worker, batch)
        return pushed

    def __enter__(self) -> Self:
        self._producer.push([msgspec.structs.replace(self._on_done, after=word_of([OPEN]) + self._on_done.after)])
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
        for at in range(0, len(names), MOST_AFTER):
            self._producer.wait(self._on_done, names[at : at + MOST_AFTER], is_all=False)
        self._producer.wait(self._on_done, [], is_all=True)

    def _listed(self, jobs: Any) -> list[NewJob]:
        if not self._is_open:
            raise LowkiqError("the batch is over: push inside `with app.batch(…) as batch`")
        # What is no list of jobs the push refuses.
        return list(jobs) if isinstance(jobs, Iterable) and not isinstance(jobs, dict | str | bytes) else jobs

    def _note(self, worker: type[Worker[Any]], jobs: Iterable[NewJob]) -> None:
        self._names.update((self._app.name_of(worker, job["id"]), None) for job in jobs)
