"""Putting jobs into an outbox: validated as a push validates them, before anything is written."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial

from lowkiq.app import Lowkiq, listed, require_sync
from lowkiq.errors import SettingsError, short
from lowkiq.hooks import wrap
from lowkiq.job import NewJob, Pushed
from lowkiq.outbox.rows import NewRow, rows_of
from lowkiq.types.variables import P
from lowkiq.worker import Target, Worker, worker_of

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
