"""Pushes that wait for the end of a transaction."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from django.db import transaction

from lowkiq.django.application import get_app
from lowkiq.worker import Worker


def push_on_commit(
    worker: type[Worker[Any]],
    jobs: Iterable[Any] = (),
    using: str | None = None,
    *,
    payloads: Iterable[Any] = (),
) -> None:
    """
    Queues jobs once the transaction that is open has been committed; at once where none is. They are validated now, as
    they are now. A process that dies after its commit has not pushed: where that may not be, take `push_by_outbox`.

    Args:
        jobs: as `worker.perform_async` takes them.
        using: alias of the database whose transaction it is.
        payloads: as `worker.push` takes them, in place of jobs.

    Raises:
        InvalidJob: names the job and the field.
        SettingsError: the worker is another application's.
    """
    app = get_app()
    for push in app.pushes_of(worker, jobs, payloads):
        transaction.on_commit(partial(app.push_validated, push.worker.queue_name, push.jobs), using=using)
