"""An outbox, on each kind of database and session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from sqlalchemy import Engine, MetaData, create_engine, select
from sqlalchemy.orm import Session

from lowkiq import Lowkiq, Worker
from lowkiq.outbox import Row
from lowkiq.sqlalchemy import Outbox
from tests.postgres import postgres  # noqa: F401 (a fixture)


class Shop(NamedTuple):
    """An application with an outbox."""

    app: Lowkiq
    outbox: Outbox
    engine: Engine
    sync: type[Worker[Any]]

    def session(self) -> Session:
        return Session(self.engine)

    def put(self, *jobs: Any) -> None:
        """Commits jobs."""
        with self.session() as session, session.begin():
            self.outbox.push(session, self.sync, list(jobs))

    def rows(self) -> list[Any]:
        with self.engine.connect() as connection:
            return list(connection.execute(select(self.outbox.table).order_by(self.outbox.table.c.id)))

    def ids(self) -> list[str]:
        return [row.job_id for row in self.rows()]

    def queued(self, id: Any) -> list[Any]:
        """The payloads of an id in Redis."""
        return [payload for job in self.sync.queries.fetch([id]) for payload in job.payloads]


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'shop.db'}"
    server = request.getfixturevalue("postgres")
    return server.url(server.new_database())


@pytest.fixture
def shop(app: Lowkiq, database: str) -> Iterator[Shop]:
    metadata = MetaData()
    outbox = Outbox(app, metadata)
    engine = create_engine(database)
    metadata.create_all(engine)
    sync = app.worker(queue_name="sync")(lambda batch: None)
    yield Shop(app, outbox, engine, sync)
    engine.dispose()


def row(
    id: int, queue: str = "sync", job_id: str = "17", job: str = '{"id":"17","payload":"1"}', tries: int = 0
) -> Row:
    return Row(id, queue, job_id, job, tries)
