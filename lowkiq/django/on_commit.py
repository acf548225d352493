"""Pushes that wait for the end of a transaction."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from django.db import transaction

from lowkiq.django.application import Push, get_app
from lowkiq.errors import SettingsError
from lowkiq.worker import Worker


def push_on_commit(
    worker: type[Worker[Any]],
    jobs: Iterable[Any] = (),
    using: str | None = None,
    *,
    payloads: Iterable[Any] = (),
) -> None:
    """
    Queues jobs once the transaction that is open has been committed; at once where none is. They are validated now, by
    the worker's `perform_async` as it stands, and encoded then: leave payloads as they are meanwhile. A process that
    dies after its commit has not pushed: where that may not be, take the outbox.

    Args:
        jobs: as `worker.perform_async` takes them.
        using: alias of the database whose transaction it is.
        payloads: as `worker.push` takes them, in place of jobs.

    Raises:
        InvalidJob: names the job and the field.
        SettingsError: the worker is another application's.
    """
    for push in checked_pushes(worker, jobs, payloads):
        transaction.on_commit(partial(get_app().push, push.worker, push.jobs), using=using)


def checked_pushes(worker: type[Worker[Any]], jobs: Iterable[Any], payloads: Iterable[Any]) -> list[Push]:
    """What `perform_async` of these jobs, or `push` of these payloads, would push. Raises InvalidJob, SettingsError."""
    app = get_app()
    if worker.registered_app() is not app:
        raise SettingsError(f"{worker.__name__} is not of Django's application: `from lowkiq.django import app`")
    payloads = list(payloads)
    return app.pushes_of(partial(worker.push, *payloads) if payloads else partial(worker.perform_async, jobs))
