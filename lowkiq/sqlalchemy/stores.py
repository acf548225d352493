"""Stores: turns with the outbox's table, on PostgreSQL and SQLite."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, Engine, Select, Table, func, select, text

from lowkiq.errors import SettingsError
from lowkiq.outbox import Row, Turn, advisory_key, file_lock
from lowkiq.sqlalchemy import table as statements

DIALECTS: Final = ("postgresql", "sqlite")
#: Turns must see what those before them have changed, whatever the engine is set to.
READ_COMMITTED: Final = {"isolation_level": "READ COMMITTED"}


class TableTurn:
    """A turn; each step in a connection's transaction that `begin` gives."""

    def __init__(self, table: Table, begin: Callable[[], AbstractContextManager[Connection]]) -> None:
        self._table, self._begin = table, begin

    @classmethod
    def on(cls, table: Table, connection: Connection) -> TableTurn:
        """A turn in the transaction of one connection."""
        return cls(table, lambda: nullcontext(connection))

    def oldest(self, limit: int, now: float) -> Sequence[Row]:
        with self._begin() as connection:
            return statements.oldest(connection, self._table, limit, now)

    def delete(self, ids: Sequence[int]) -> None:
        with self._begin() as connection:
            statements.remove(connection, self._table, ids)

    def refuse(self, ids: Sequence[int], error: str, retry_at: float) -> None:
        with self._begin() as connection:
            statements.refuse(connection, self._table, ids, error, retry_at)


class TableStore:
    """The outbox's table in the database of an engine: an `OutboxStore`."""

    def __init__(self, engine: Engine, table: Table, lock: FileLock) -> None:
        self._engine, self._table, self._lock = engine, table, lock

    @contextmanager
    def turn(self) -> Iterator[Turn | None]:
        """See `lowkiq.outbox.OutboxStore`."""
        if self._engine.dialect.name == "sqlite":
            with self._engine.begin() as connection:
                path = database_file(connection)
            with self._lock.held(path) as is_ours:
                yield TableTurn(self._table, self._engine.begin) if is_ours else None
            return
        with self._engine.connect().execution_options(**READ_COMMITTED) as connection, connection.begin():
            is_ours = bool(connection.scalar(try_lock(self._table)))
            yield TableTurn.on(self._table, connection) if is_ours else None


class FileLock:
    """The lock of an outbox's relays beside a database that is a file; within the process if it is in memory."""

    def __init__(self) -> None:
        self._in_memory = threading.Lock()

    @contextmanager
    def held(self, path: Path | None) -> Iterator[bool]:
        """Holds the lock; False while another relay has it."""
        if path:
            with file_lock(path) as is_ours:
                yield is_ours
        elif self._in_memory.acquire(blocking=False):
            try:
                yield True
            finally:
                self._in_memory.release()
        else:
            yield False


def database_file(connection: Connection) -> Path | None:
    """The file beside SQLite's own whose lock is that of the relays; None: the database is in memory."""
    (name,) = (row[2] for row in connection.execute(text("PRAGMA database_list")) if row[1] == "main")
    return Path(f"{name}-lowkiq-relay") if name else None


def try_lock(table: Table) -> Select[Any]:
    """PostgreSQL: takes the lock of a table's relays until the transaction ends. It goes with a connection's death."""
    return select(func.pg_try_advisory_xact_lock(advisory_key("relay", table.fullname)))


def check_dialect(name: str) -> None:
    """Raises SettingsError for a database whose locks the outbox does not know."""
    if name not in DIALECTS:
        raise SettingsError(
            f"the outbox knows no lock of {name} by which only one relay would send: use {' or '.join(DIALECTS)}, or "
            "write a lowkiq.outbox.OutboxStore for it"
        )
