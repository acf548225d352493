"""
A shop whose every change of an order goes through an outbox, and the processes that a test kills.

`python -m tests.sqlalchemy.world write N` changes orders for ever; `… step put|relay N` does one thing, and dies at the
Nth call to the database or to Redis.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Callable
from typing import Any

from sqlalchemy import Column, Integer, MetaData, Table, create_engine, event, insert, select, update
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from lowkiq import Lowkiq
from lowkiq.sqlalchemy import Outbox

ORDERS = 5

app = Lowkiq()
metadata = MetaData()
orders = Table("orders", metadata, Column("id", Integer, primary_key=True), Column("version", Integer, nullable=False))
outbox = Outbox(app, metadata)
engine = create_engine(os.environ["DATABASE_URL"])
relay = outbox.relay(engine, batch=7, every=0.02)


@app.worker(queue_name="sync", batch_size=3, shards_count=2)
def sync(batch: dict[str, list[int]]) -> None:
    """Notes each change of each order, as it comes."""
    for id, versions in batch.items():
        app.redis().rpush(f"{app.settings.namespace}:seen:{id}", *versions)


def make() -> None:
    """Makes the tables, and orders of version 0."""
    metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(insert(orders), [{"id": id, "version": 0} for id in range(1, ORDERS + 1)])


def change(id: int) -> None:
    """Changes an order, and says so, in one transaction."""
    with Session(engine) as session, session.begin():
        changed = update(orders).where(orders.c.id == id).values(version=orders.c.version + 1)
        session.execute(changed)
        version = session.scalars(select(orders.c.version).where(orders.c.id == id)).one()
        outbox.push(session, sync, [{"id": id, "payload": version}])


def versions() -> dict[int, int]:
    """The version of each order."""
    with engine.connect() as connection:
        return {row.id: row.version for row in connection.execute(select(orders))}


def seen(id: int) -> list[int]:
    """The changes of an order that its worker got."""
    reply: Any = app.redis().lrange(f"{app.settings.namespace}:seen:{id}", 0, -1)
    return [int(one) for one in reply]


def write(count: int) -> None:
    """Changes orders."""
    chance = random.Random(count)
    while True:
        try:
            change(chance.randint(1, ORDERS))
        except OperationalError as error:
            if "locked" not in str(error):  # SQLite waits only so long
                raise


def die_at(number: int) -> None:
    """Kills this process before or after the Nth statement, commit or push."""
    left = number

    def call(*_: Any) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    for name in ("before_cursor_execute", "after_cursor_execute", "begin", "commit", "rollback"):
        event.listen(engine, name, call)
    push: Callable[..., Any] = app.push_validated

    def pushed(*arguments: Any) -> Any:
        call()
        result = push(*arguments)
        call()
        return result

    vars(app)["push_validated"] = pushed


def step(what: str, number: int) -> None:
    """Does one thing, unless it dies before."""
    die_at(number)
    if what == "put":
        change(1)
    else:
        while relay.run_once():
            pass


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["write", count]:
            write(int(count))
        case ["step", what, number]:
            step(what, int(number))
