"""The page on idempotent jobs, on a real PostgreSQL: a second run changes nothing, nor does an owner that was away."""

from __future__ import annotations

import re
from contextvars import copy_context
from types import ModuleType
from typing import Any

import psycopg
import pytest

from lowkiq import testing
from tests.docs.recipe import as_module
from tests.docs.test_ordering import as_owner
from tests.postgres import postgres  # noqa: F401 (a fixture)
from tests.support import ROOT

PAGE = (ROOT / "docs/idempotent.md").read_text("utf-8")


@pytest.fixture
def shop(tmp_path, monkeypatch, postgres) -> ModuleType:  # noqa: F811
    """The blocks of the page as a module, and its tables in a database."""
    database = f"host={postgres.directory} user=postgres dbname={postgres.new_database()}"
    monkeypatch.setenv("DATABASE_URL", database)
    (tables,) = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
    with psycopg.connect(database) as connection:
        connection.execute(tables.encode())
    return as_module("\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)), tmp_path, monkeypatch)


def rows(shop: Any, query: str) -> list[Any]:
    with psycopg.connect(shop.DATABASE) as connection:
        return connection.execute(query.encode()).fetchall()


def test_an_older_version_changes_nothing(shop):
    with testing.fake(shop.app) as jobs:
        for version in (1, 3, 2, 3):
            shop.save_order.push({"order_id": 17, "version": version, "state": f"v{version}"})
            assert [outcome.done for outcome in jobs.drain()] == [True]
    assert rows(shop, "SELECT state, version FROM orders") == [("v3", 3)]


def test_a_booking_counts_once_however_often_it_is_run(shop):
    bookings = [{"event_id": "e1", "amount": 10}, {"event_id": "e2", "amount": 10}]
    for _ in range(2):
        assert testing.perform(shop.book, 17, bookings).done
    assert rows(shop, "SELECT id, balance FROM accounts") == [(17, 20)]


def test_an_owner_that_was_away_is_refused(shop):
    epoch = 1_800_000_000_000_000  # microseconds: more than an INTEGER holds

    def write(epoch: int, level: int) -> None:
        variables = copy_context()
        variables.run(as_owner, epoch)
        variables.run(shop.set_stock().perform_one, 17, [level])

    write(epoch, 5)
    write(epoch + 1, 6)
    with pytest.raises(shop.Superseded):
        write(epoch, 7)
    assert rows(shop, "SELECT level FROM stock") == [(6,)]
