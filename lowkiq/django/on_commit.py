"""Pushes that wait for the end of a transaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from django.db import transaction

from lowkiq.django.application import Push, get_app
from lowkiq.job import EncodedJob
from lowkiq.outbox.putting import Waiting, push_together
from lowkiq.worker import Target


def push_on_commit(
    worker: Target,
    jobs: Iterable[Any] = (),
    using: str | None = None,
    *,
    payloads: Iterable[Any] = (),
    robust: bool = False,
) -> None:
    """
    Queues jobs once the transaction that is open has been committed; at once where none is. They are validated now, as
    they are now. A process that dies after its commit has not pushed: where that may not be, take `push_by_outbox`.

    Calls that follow each other in a transaction push together. What can't be pushed is logged as `not_pushed`, with
    its ids, and raises PushFailed out of the `atomic` block, whose change is committed all the same.

    Args:
        worker: whose jobs they are; or a task of lowkiq.celery, whose jobs `task.job` makes.
        jobs: as `worker.perform_async` takes them.
        using: alias of the database whose transaction it is.
        payloads: as `worker.push` takes them, in place of jobs.
        robust: as `transaction.on_commit` has it: what can't be pushed raises nothing, and what else waits for the
            commit is called. Without it Django calls nothing that comes after one that has raised.

    Raises:
        InvalidJob: names the job and the field.
        SettingsError: the worker is another application's.
        PushFailed: where no transaction is open.
    """
    if pushes := get_app().pushes_of(worker, jobs, payloads):
        waiting = transaction.get_connection(using).run_on_commit
        transaction.on_commit(_Pushes(pushes, waiting, robust=robust), using=using, robust=robust)


class _Pushes:
    """
    What one call pushes, with those that follow it.

    Args:
        waiting: what Django has waiting for the commit. It takes from it what it calls; a savepoint that is rolled back
            has it go on with another list, and then each call of push_on_commit pushes for itself.
    """

    def __init__(self, pushes: Sequence[Push], waiting: Sequence[tuple[Any, ...]], *, robust: bool) -> None:
        self.pushes, self.robust, self.is_done = pushes, robust, False
        self._waiting = waiting
        self.__qualname__ = "push_on_commit"  # by which Django's log calls it

    def __call__(self) -> None:
        if self.is_done:
            return
        jobs: dict[str, list[EncodedJob]] = {}
        for one in self._together():
            one.is_done = True
            for worker, some in one.pushes:
                jobs.setdefault(worker.queue_name, []).extend(some)
        app = get_app()
        waiting = [
            Waiting(queue, [job.id.decode() for job in some], partial(app.push_validated, queue, some))
            for queue, some in jobs.items()
        ]
        push_together(waiting, app.settings.push_timeout)

    def _together(self) -> list[_Pushes]:
        found = [self]
        if not any(self in entry for entry in self._waiting):
            for entry in self._waiting:
                pushes = next((part for part in entry if isinstance(part, _Pushes)), None)
                if pushes is None or pushes.robust != self.robust:
                    break
                found.append(pushes)
        return found
