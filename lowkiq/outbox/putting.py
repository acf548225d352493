"""
Putting jobs into an outbox: validated as a push validates them, before anything is written. Without
an outbox, jobs are pushed together once a transaction has committed.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from lowkiq import clock
from lowkiq.app import Lowkiq, listed, require_sync
from lowkiq.errors import LowkiqError, PushFailed, SettingsError, short
from lowkiq.handlers.retries import loggable
from lowkiq.hooks import wrap
from lowkiq.job import NewJob, Pushed
from lowkiq.log import get_logger
from lowkiq.outbox.rows import NewRow, rows_of
from lowkiq.types.variables import P
from lowkiq.worker import Target, Worker, worker_of

logger = get_logger()


class Waiting(NamedTuple):
    """What waits for the commit to be pushed to one queue."""

    queue: str
    ids: Sequence[str]
    push: Callable[[], object]


def push_together(waiting: Iterable[Waiting], push_timeout: float) -> None:
    """
    Pushes to each of these queues. One that fails keeps no other from its turn, unless it has taken `push_timeout`
    seconds by then: the caller is not to wait for each. Raises the first failure, with a note for each further one; the
    log names the jobs, whose change is committed already.
    """
    began, failed = clock.monotonic(), list[LowkiqError]()
    for queue, ids, push in waiting:
        try:
            if failed and clock.monotonic() - began >= push_timeout:
                raise PushFailed(f"not tried, as Redis has not answered within {push_timeout:g} s")
            push()
        except LowkiqError as error:
            failed.append(error)
            if len(failed) > 1:
                failed[0].add_note(f"nor was all pushed to queue {queue}: {error}")
            logger.error(
                "not_pushed", queue=queue, jobs=len(ids), ids=loggable(ids), error=str(error)[:300],
                advice="their transaction has committed, so push them again; an outbox does so by itself",
            )  # fmt: skip
    if failed:
        raise failed[0]


#: A push into an outbox as client middlewares see it: nothing is in Redis yet.
_PUT = Pushed(0, 0)


def put(
    app: Lowkiq,
    worker: Target[P],
    jobs: Iterable[NewJob[P]],
    write: Callable[[Sequence[NewRow]], object],
) -> None:
    """
    Validates jobs, and writes their rows in their order. Client middlewares are around it, here and not at the relay,
    since they may need to know who pushes.

    Raises:
        InvalidJob: names the job and the field; nothing was written.
        SettingsError: the worker belongs to another application, or a client middleware is async.
    """
    known = _worker(app, worker)
    require_sync(app.settings.client_middlewares, "apush")
    batch = listed(jobs)

    def call() -> Pushed:
        if rows := rows_of(known, app.validated(known, batch)):
            write(rows)
        return _PUT

    wrap(app.settings.client_middlewares, known, batch, call)()


async def aput(
    app: Lowkiq,
    worker: Target[P],
    jobs: Iterable[NewJob[P]],
    write: Callable[[Sequence[NewRow]], Awaitable[object]],
) -> None:
    """The same, awaited. Client middlewares get an awaitable from `call()`."""
    known = _worker(app, worker)
    batch = listed(jobs)

    async def call() -> Pushed:
        if rows := rows_of(known, app.validated(known, batch)):
            await write(rows)
        return _PUT

    result = wrap(app.settings.client_middlewares, known, batch, partial(call))()
    if inspect.isawaitable(result):
        await result


def _worker(app: Lowkiq, target: Target[P]) -> type[Worker[P]]:
    """Raises SettingsError for what is no worker of the application."""
    worker = worker_of(target)
    if app.workers.get(worker.queue_name) is not worker:
        raise SettingsError(
            f"{short(worker)} is no worker of the application that this outbox is for, so its relay could not push to "
            "it: put @app.worker above it"
        )
    return worker
