"""A real PostgreSQL for tests: a private server in a directory of its own, on a unix socket."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import psycopg
import pytest

from tests.support import lacks, wait_until

#: Where Debian puts it, and whoever runs it where root may not.
DEBIAN = Path("/usr/lib/postgresql")
UNPRIVILEGED = "postgres"
_numbers = count()


class PostgresServer:
    """A private server: databases are made for each test."""

    def __init__(self, directory: Path, programs: Path) -> None:
        self.directory, self._programs = directory, programs
        self.process: subprocess.Popen[bytes] | None = None
        #: PostgreSQL refuses to run as root.
        self._user = UNPRIVILEGED if os.geteuid() == 0 else None

    def start(self) -> None:
        """Makes the cluster, if there is none, and starts the server; waits until it answers."""
        data = self.directory / "data"
        if self._user:
            os.chown(self.directory, pwd.getpwnam(self._user).pw_uid, -1)
        if not data.exists():
            self._run("initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        options = {"listen_addresses": "", "unix_socket_directories": self.directory, "fsync": "off"}
        settings = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [self._programs / "postgres", "-D", data, *settings],
                stdout=log, stderr=log, user=self._user, cwd=self.directory, start_new_session=True,
            )  # fmt: skip
        wait_until(self.answers)

    def stop(self) -> None:
        """Ends it, and whoever is connected."""
        if self.process:
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait(60)
            self.process = None

    def answers(self) -> bool:
        try:
            self.ask("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

    def ask(self, command: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """One command, over a connection of its own."""
        address = f"host={self.directory} user=postgres dbname={database}"
        with psycopg.connect(address, autocommit=True) as connection:
            cursor = connection.execute(command.encode())
            return cursor.fetchall() if cursor.description else []

    def new_database(self, like: str = "template1") -> str:
        """The name of a new database: an empty one, or a copy of one that nobody is connected to."""
        name = f"test{next(_numbers)}"
        self.ask(f"CREATE DATABASE {name} TEMPLATE {like}")
        return name

    def url(self, database: str) -> str:
        """The address of a database, as SQLAlchemy writes it."""
        return f"postgresql+psycopg://postgres@/{database}?host={self.directory}"

    def _run(self, program: str, *arguments: str | Path) -> None:
        done = subprocess.run(
            [self._programs / program, *arguments], cwd=self.directory, user=self._user, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr


def programs() -> Path | None:
    """The directory of PostgreSQL's programs: Debian's newest, else where PATH has initdb."""
    found = sorted(DEBIAN.glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if found:
        return found[-1].parent
    on_path = shutil.which("initdb")
    return Path(on_path).parent if on_path else None


@contextmanager
def running_postgres() -> Iterator[PostgresServer]:
    """A server in a directory that goes with it. Skips without PostgreSQL; fails in CI."""
    found = programs()
    if found is None:
        lacks("no PostgreSQL here: apt-get install postgresql")
    with tempfile.TemporaryDirectory(prefix="lowkiq-postgres-") as directory:
        server = PostgresServer(Path(directory), found)
        try:
            server.start()
            yield server
        finally:
            server.stop()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One server for all tests of this process; each test makes a database: `postgres.new_database()`."""
    with running_postgres() as server:
        yield server
