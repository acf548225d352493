"""The shop of examples/django_shop with a database and a Redis of its own, as processes of people's."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.harness import Supervised
from tests.postgres import PostgresServer
from tests.support import ROOT, SOURCES

SHOP = ROOT / "examples/django_shop"
MANAGE = str(SHOP / "manage.py")


class Shop:
    """
    The shop.

    Args:
        directory: of the test: what runs is started here, not where manage.py is.
        postgres: the server that has its database; None for a file of SQLite's.
        name: of its database, if there is one.
        settings: of `LOWKIQ`, in JSON.
    """

    def __init__(self, directory: Path, postgres: PostgresServer | None, name: str = "", **settings: Any) -> None:
        self.directory, self._postgres = directory, postgres
        self._name = name or (postgres.new_database() if postgres else str(directory / "shop.sqlite3"))
        self.environment = {
            "LOWKIQ": json.dumps(settings),
            "PYTHONPATH": SOURCES,
            "LOWKIQ_STATE_DIR": str(directory / "state"),
            "SHOP_DB": self._name,
        }
        if postgres:
            database = {"NAME": self._name, "USER": "postgres", "HOST": str(postgres.directory), "CONN_MAX_AGE": None}
            self.environment["DATABASE"] = json.dumps({"ENGINE": "django.db.backends.postgresql", **database})

    def like_it(self, directory: Path, **settings: Any) -> Shop:
        """Another, with a copy of this one's database, which nobody is connected to: faster than to migrate it."""
        if self._postgres:
            name = self._postgres.new_database(like=self._name)
        else:
            name = str(shutil.copy(self._name, directory))
        return Shop(directory, self._postgres, name, **settings)

    def manage(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """manage.py, to its end."""
        return self.run(MANAGE, *words, **environment)

    def run(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """A program in the shop's environment."""
        plain = {name: value for name, value in os.environ.items() if "REDIS" not in name and "LOWKIQ" not in name}
        return subprocess.run(
            [sys.executable, "-W", "error", *words], cwd=self.directory, env=plain | self.environment | environment,
            capture_output=True, text=True, timeout=200, check=False,
        )  # fmt: skip

    def did(self, *words: str, **environment: str) -> str:
        """What manage.py prints when all goes well."""
        done = self.manage(*words, **environment)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def push(self, code: str) -> None:
        """Runs code in the shop that has `jobs` and `tasks`."""
        self.did("shell", "--no-imports", "-c", f"from shop import jobs, tasks\n{code}")

    def nodes(self, *options: str, **environment: str) -> Supervised:
        """`manage.py lowkiq`."""
        return Supervised(self.directory, [MANAGE, "lowkiq", *options], self.environment | environment)

    def ask(self, command: str) -> list[tuple[Any, ...]]:
        """One command of SQL."""
        if self._postgres:
            return self._postgres.ask(command, self._name)
        connection = sqlite3.connect(self._name, timeout=60, isolation_level=None)
        try:
            return connection.execute(command).fetchall()
        finally:
            connection.close()

    def mirrored(self) -> dict[int, list[int]]:
        """The versions of each order that the ERP was told of, in their order."""
        found: dict[int, list[int]] = {}
        for order, version in self.ask("SELECT order_id, version FROM shop_mirrored ORDER BY id"):
            found.setdefault(order, []).append(version)
        return found
