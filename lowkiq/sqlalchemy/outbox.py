"""Outbox: jobs in a table, written in the transaction of the change that they tell of, and relayed to Redis."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from typing import Final, overload

from sqlalchemy import BigInteger, Engine, MetaData, Table, cast, func, select
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session

from lowkiq.app import Lowkiq
from lowkiq.errors import SettingsError, short
from lowkiq.job import NewJob
from lowkiq.outbox import NewRow, Relay, advisory_key, aput, put
from lowkiq.outbox.relay import BATCH, EVERY
from lowkiq.sqlalchemy.async_relay import AsyncRelay
from lowkiq.sqlalchemy.commits import AwaitedSession, PlainSession, is_awaited, on_commit, plain
from lowkiq.sqlalchemy.stores import FileLock, TableStore, check_dialect
from lowkiq.sqlalchemy.table import outbox_table, write
from lowkiq.types.variables import P
from lowkiq.worker import Target

#: Locks that job ids share: PostgreSQL keeps them all in memory, some 6,400 by default for all its transactions.
_LOCKS: Final = 1024


class Outbox:
    """
    An outbox: a table of jobs, which a relay pushes.

    Args:
        app: the application whose workers' jobs it takes.
        metadata: gets the table, so that `create_all` and Alembic make it.
        name: of the table.
        schema: of the table.
        lock_ids: on PostgreSQL, a transaction that pushes to an id waits for the end of others that have, so that rows
            of an id are in the order of the commits. False if your own code locks what belongs to an id before it
            pushes. On SQLite transactions that write come one after the other anyway.
    """

    def __init__(
        self,
        app: Lowkiq,
        metadata: MetaData,
        *,
        name: str = "lowkiq_outbox",
        schema: str | None = None,
        lock_ids: bool = True,
    ) -> None:
        self.app = app
        #: The table, with the columns id, queue, job_id, job, tries, retry_at and error.
        self.table: Table = outbox_table(metadata, name, schema)
        self._lock_ids, self._lock = lock_ids, FileLock()
        self._relays: weakref.WeakSet[Relay | AsyncRelay] = weakref.WeakSet()

    def push(self, session: PlainSession, worker: Target[P], jobs: Iterable[NewJob[P]], /) -> None:
        """
        Puts jobs into the outbox in the session's transaction: they are pushed if, and only if, it commits. What the
        session holds is flushed first, so that its rows are locked before the jobs get their places.

        Args:
            worker: whose jobs they are; or a task of lowkiq.celery, whose jobs `task.job` makes.
            jobs: as `perform_async` takes them. `delay` counts from when the relay pushes them.

        Raises:
            InvalidJob: names the job and the field; nothing was written.
            SettingsError: the worker is not of the outbox's application, or the session is one that is awaited.
        """
        if is_awaited(session):
            raise SettingsError("this session is awaited: await outbox.apush(session, …)")
        put(self.app, worker, jobs, lambda rows: self._write(plain(session), rows))

    async def apush(self, session: AwaitedSession, worker: Target[P], jobs: Iterable[NewJob[P]], /) -> None:
        """The same in a session that is awaited."""
        if not is_awaited(session):
            raise SettingsError(f"{short(session)} is not awaited: outbox.push(session, …)")
        called: AsyncSession = session() if isinstance(session, async_scoped_session) else session
        await aput(self.app, worker, jobs, lambda rows: called.run_sync(lambda plain: self._write(plain, rows)))

    @overload
    def relay(self, engine: Engine, *, batch: int = ..., every: float = ...) -> Relay: ...
    @overload
    def relay(self, engine: AsyncEngine, *, batch: int = ..., every: float = ...) -> AsyncRelay: ...
    def relay(self, engine: Engine | AsyncEngine, *, batch: int = BATCH, every: float = EVERY) -> Relay | AsyncRelay:
        """
        A relay of this outbox: `with outbox.relay(engine):` runs it on a thread, `async with` that of an async engine
        as a task, `run()` until it is stopped, `run_once()` for one batch, and `python -m lowkiq.outbox MODULE:NAME` in
        a process of its own. A commit of this process wakes it.

        Args:
            batch: rows that are sent at once, at most.
            every: seconds between two looks at the table, for commits of other processes.

        Raises:
            SettingsError: the database is none whose locks the outbox knows.
        """
        check_dialect(engine.dialect.name)
        relay: Relay | AsyncRelay
        if isinstance(engine, AsyncEngine):
            relay = AsyncRelay(self.app, engine, self.table, self._lock, batch=batch, every=every)
        else:
            relay = Relay(self.app, TableStore(engine, self.table, self._lock), batch=batch, every=every)
        self._relays.add(relay)
        return relay

    def _write(self, session: Session, rows: Sequence[NewRow]) -> None:
        session.flush()
        if self._lock_ids and session.get_bind(clause=self.table).dialect.name == "postgresql":
            places = {advisory_key(row.queue, row.job_id) % _LOCKS for row in rows}
            # In one order, so that two transactions can't wait for each other here.
            keys = [advisory_key(self.table.fullname, str(place)) for place in sorted(places)]
            key = func.unnest(cast(keys, ARRAY(BigInteger))).column_valued("key")
            session.execute(select(func.pg_advisory_xact_lock(key)))
        write(session, self.table, rows)
        on_commit(session, self._wake, first=True)

    def _wake(self) -> None:
        for relay in list(self._relays):
            relay.wake()
