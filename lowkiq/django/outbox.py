"""
The outbox as a table of Django's: jobs are written in the transaction of the change that they tell of, and a relay
(`manage.py lowkiq_outbox`) pushes them, those of a job id in the order of their rows.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.db import connections, router, transaction
from django.db.models import Exists, F, OuterRef, QuerySet

from lowkiq.django.application import get_app
from lowkiq.django.connections import close_stale
from lowkiq.outbox import Relay, Row, Turn, advisory_key, file_lock
from lowkiq.outbox.relay import EVERY
from lowkiq.outbox.rows import rows_of
from lowkiq.worker import Target

if TYPE_CHECKING:
    from lowkiq.django.models import OutboxRow


def push_by_outbox(
    worker: Target,
    jobs: Iterable[Any] = (),
    using: str | None = None,
    *,
    payloads: Iterable[Any] = (),
) -> None:
    """
    Writes jobs into the outbox, in the transaction that is open: if that is committed, they are pushed, whatever dies
    meanwhile; else they never were. They are validated before anything is written.

    Args:
        worker: whose jobs they are; or a task of lowkiq.celery, whose jobs `task.job` makes.
        jobs: as `worker.perform_async` takes them.
        using: alias of the database whose transaction it is; by default the one that routers choose.
        payloads: as `worker.push` takes them, in place of jobs.

    Raises:
        InvalidJob: names the job and the field.
        SettingsError: the worker is another application's.
    """
    model = table()
    rows = [
        model(queue=row.queue, job_id=row.job_id, job=row.job)
        for push in get_app().pushes_of(worker, jobs, payloads)
        for row in rows_of(push.worker, push.jobs)
    ]
    if rows:
        model.objects.using(using).bulk_create(rows)


def table() -> type[OutboxRow]:
    """The model, which can't be imported before Django's apps are there, as this module can."""
    model: type[OutboxRow] = apps.get_model("lowkiq", "OutboxRow")
    return model


def relay(using: str | None = None, *, every: float = EVERY) -> Relay:
    """
    A relay of the outbox of one database. Any number may run, one sends at a time.

    Args:
        every: seconds between two looks at the table.

    Raises:
        ImproperlyConfigured: the database is neither PostgreSQL nor SQLite.
    """
    return Relay(get_app(), DjangoStore(using or router.db_for_write(table())), every=every)


def start_relay() -> None:
    """Relays on a thread of this process: `LOWKIQ = {"node_started": "lowkiq.django.outbox.start_relay"}`."""
    relay().start()


class DjangoStore:
    """The table in one database, as a relay sees it."""

    def __init__(self, using: str) -> None:
        self.using = using
        vendor = connections[using].vendor
        if vendor not in {"postgresql", "sqlite"}:
            raise ImproperlyConfigured(f"the outbox needs PostgreSQL or SQLite, and database {using!r} is {vendor}")

    @contextmanager
    def turn(self) -> Iterator[Turn | None]:
        """Holds the lock of the table, if it is free."""
        close_stale()
        try:
            if connections[self.using].vendor == "sqlite":
                with file_lock(self._lock_file()) as is_ours:
                    yield DjangoTurn(self.using) if is_ours else None
            else:
                # The lock goes with the transaction, when what it has changed can be seen, or with the connection.
                with transaction.atomic(self.using):
                    yield DjangoTurn(self.using) if self._is_locked() else None
        finally:
            close_stale()

    def _is_locked(self) -> bool:
        key = advisory_key("outbox", table()._meta.db_table)
        with connections[self.using].cursor() as cursor:
            cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [key])
            return bool(cursor.fetchone()[0])

    def _lock_file(self) -> Path:
        """Beside the database; of one in memory, which is this process's alone, a file for all such."""
        connection: Any = connections[self.using]
        if connection.is_in_memory_db():
            key = advisory_key(str(connection.settings_dict["NAME"]), str(os.geteuid()))
            return Path(tempfile.gettempdir()) / f"lowkiq-outbox-{key}"
        return Path(f"{connection.settings_dict['NAME']}-lowkiq-outbox")


class DjangoTurn:
    """A turn of the relay with the table."""

    def __init__(self, using: str) -> None:
        self._rows: QuerySet[OutboxRow] = table().objects.using(using)

    def oldest(self, limit: int, now: float) -> Sequence[Row]:
        """The oldest rows, without refused ones and what waits for them."""
        refused = self._rows.filter(
            queue=OuterRef("queue"), job_id=OuterRef("job_id"), id__lt=OuterRef("id"), retry_at__gt=now
        ).filter(retry_at__gt=0)  # as the index has it
        found = self._rows.filter(~Exists(refused), retry_at__lte=now).order_by("id")[:limit]
        return [Row(row.id, row.queue, row.job_id, row.job, row.tries, row.error) for row in found]

    def delete(self, ids: Sequence[int]) -> None:
        """Deletes what was sent."""
        self._rows.filter(id__in=ids).delete()

    def refuse(self, ids: Sequence[int], error: str, retry_at: float) -> None:
        """Notes what was refused."""
        self._rows.filter(id__in=ids).update(error=error, retry_at=retry_at, tries=F("tries") + 1)
