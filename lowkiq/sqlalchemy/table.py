"""The outbox's table, and the statements on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Double,
    Identity,
    Index,
    Integer,
    MetaData,
    Select,
    Table,
    Text,
    bindparam,
    delete,
    exists,
    insert,
    select,
    update,
)
from sqlalchemy.orm import Session

from lowkiq.outbox import NewRow, Row

#: Rows that one statement names, at most: SQLite's own limit is 999 in what is old.
_AT_ONCE: Final = 500


def outbox_table(metadata: MetaData, name: str, schema: str | None) -> Table:
    """Declares it, so that `create_all` and Alembic find it."""
    # An id is never given twice (SQLite would, without AUTOINCREMENT): it becomes the score of the job.
    table = Table(
        name,
        metadata,
        Column("id", BigInteger().with_variant(Integer, "sqlite"), Identity(), primary_key=True),
        Column("queue", Text, nullable=False),
        Column("job_id", Text, nullable=False),
        Column("job", Text, nullable=False),
        Column("tries", Integer, nullable=False, server_default="0"),
        Column("retry_at", Double, nullable=False, server_default="0"),
        Column("error", Text),
        schema=schema,
        sqlite_autoincrement=True,
    )
    is_refused = table.c.retry_at > 0
    Index(f"{name}_refused", table.c.queue, table.c.job_id, postgresql_where=is_refused, sqlite_where=is_refused)
    return table


def write(connection: Connection | Session, table: Table, rows: Sequence[NewRow]) -> None:
    """Writes rows in their order: their ids rise with it."""
    # Drivers carry this out row by row. One INSERT of many rows would not promise the order of their ids.
    connection.execute(insert(table), [row._asdict() for row in rows])


def oldest(connection: Connection, table: Table, limit: int, now: float) -> list[Row]:
    """See `lowkiq.outbox.Turn`."""
    return [Row(*row) for row in connection.execute(_oldest(table), {"limit": limit, "now": now})]


def remove(connection: Connection, table: Table, ids: Sequence[int]) -> None:
    """Deletes rows."""
    for start in range(0, len(ids), _AT_ONCE):
        connection.execute(delete(table).where(table.c.id.in_(ids[start : start + _AT_ONCE])))


def refuse(connection: Connection, table: Table, ids: Sequence[int], error: str, retry_at: float) -> None:
    """Keeps rows with an error."""
    for start in range(0, len(ids), _AT_ONCE):
        some = table.c.id.in_(ids[start : start + _AT_ONCE])
        connection.execute(update(table).where(some).values(error=error, retry_at=retry_at, tries=table.c.tries + 1))


def _oldest(table: Table) -> Select[Any]:
    refused = table.alias("refused")
    is_held = exists().where(
        refused.c.retry_at > 0,  # which has an index
        refused.c.retry_at > bindparam("now"),
        refused.c.queue == table.c.queue,
        refused.c.job_id == table.c.job_id,
        refused.c.id <= table.c.id,
    )
    columns = (table.c.id, table.c.queue, table.c.job_id, table.c.job, table.c.tries, table.c.error)
    return select(*columns).where(~is_held).order_by(table.c.id).limit(bindparam("limit"))
