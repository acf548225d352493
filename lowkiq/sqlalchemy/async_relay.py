"""AsyncRelay: the relay of an engine whose calls are awaited, as a task of an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, TypeVar

from sqlalchemy import Connection, Table
from sqlalchemy.ext.asyncio import AsyncEngine

from lowkiq import clock
from lowkiq.app import Lowkiq
from lowkiq.outbox import Outcome, Row, send, settle
from lowkiq.outbox.relay import BATCH, EVERY, Rest
from lowkiq.sqlalchemy.stores import READ_COMMITTED, FileLock, TableTurn, database_file, try_lock

T = TypeVar("T")
#: Does something with a connection, on its driver's loop.
Run = Callable[[Callable[[Connection], Any]], Awaitable[Any]]


class AsyncRelay:
    """As `lowkiq.outbox.Relay`, awaited: made by `Outbox.relay`. The pushes are on a thread."""

    def __init__(
        self,
        app: Lowkiq,
        engine: AsyncEngine,
        table: Table,
        lock: FileLock,
        *,
        batch: int = BATCH,
        every: float = EVERY,
    ) -> None:
        self.app = app
        self._engine, self._table, self._lock = engine, table, lock
        self._batch, self._rest = batch, Rest(every)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken, self._is_stopped = asyncio.Event(), False
        self._task: asyncio.Task[None] | None = None

    async def run_once(self) -> int | None:
        """One turn: how many rows were sent or refused, None if another relay has the lock. Raises as Relay's."""
        async with self._turn() as run:
            if run is None:
                return None
            rows: list[Row] = await run(lambda on: self._of(on).oldest(self._batch, clock.real()))
            if not rows:
                return 0
            outcome = await self._send(rows)
            settled: int = await run(lambda on: settle(self._of(on), outcome))
            return settled

    async def run(self) -> None:
        """Relays until `stop`, whatever fails meanwhile: the log tells, and it tries again."""
        self._loop = asyncio.get_running_loop()
        while not self._is_stopped:
            self._woken.clear()
            try:
                seconds = self._rest.after(await self.run_once())
            except Exception as error:  # noqa: BLE001 (of any database's driver; the rows are there still)
                seconds = self._rest.after_error(error)
            if seconds and not self._is_stopped:
                await self._wait(seconds)

    def wake(self) -> None:
        """Says that rows were committed; from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._woken.set)

    def stop(self) -> None:
        """Ends `run` after the turn that it is in; from any thread."""
        self._is_stopped = True
        self.wake()

    async def __aenter__(self) -> AsyncRelay:
        self._is_stopped, self._loop = False, asyncio.get_running_loop()
        self._task = asyncio.create_task(self.run(), name="lowkiq-outbox-relay")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
        if self._task is not None:
            await self._task

    async def _wait(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._woken.wait(), seconds)
        except TimeoutError:
            return

    async def _send(self, rows: list[Row]) -> Outcome:
        """Sends on a thread. A cancelled relay waits for it: another one must not begin while this one is at it."""
        sending = asyncio.ensure_future(asyncio.to_thread(send, self.app, rows))
        try:
            return await asyncio.shield(sending)
        except asyncio.CancelledError:
            await asyncio.wait([sending])
            raise

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[Run | None]:
        if self._engine.dialect.name != "sqlite":
            async with self._engine.connect() as connection:
                await connection.execution_options(**READ_COMMITTED)
                async with connection.begin():
                    yield connection.run_sync if await connection.scalar(try_lock(self._table)) else None
            return
        path = await self._run_alone(database_file)
        with self._lock.held(path) as is_ours:
            yield self._run_alone if is_ours else None

    async def _run_alone(self, work: Callable[[Connection], T]) -> T:
        async with self._engine.begin() as connection:
            return await connection.run_sync(work)

    def _of(self, connection: Connection) -> TableTurn:
        return TableTurn.on(self._table, connection)
