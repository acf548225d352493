"""A private PostgreSQL for as long as a measurement takes: Procrastinate needs one."""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.contender import ContenderFailed
from tests.support import wait_until

#: Nothing is kept here either: the same terms as for Redis without persistence.
OPTIONS = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "listen_addresses=")


@contextmanager
def database() -> Iterator[str]:
    """
    How to connect to a fresh server.

    Raises:
        ContenderFailed: there is none here.
    """
    programs = _programs()
    user = "postgres" if os.geteuid() == 0 else None  # it refuses to run as root
    with tempfile.TemporaryDirectory(prefix="lowkiq-bench-", ignore_cleanup_errors=True) as directory:
        if user:
            os.chown(directory, pwd.getpwnam(user).pw_uid, -1)
        Path(directory).chmod(0o755)
        data = f"{directory}/data"
        initdb: list[str | Path] = [programs / "initdb", "-D", data, "-A", "trust", "-U", "bench", "--no-sync"]
        subprocess.run(initdb, user=user, cwd=directory, check=True, stdout=subprocess.DEVNULL)
        options = [word for option in OPTIONS for word in ("-c", option)]
        server = subprocess.Popen(
            [programs / "postgres", "-D", data, "-k", directory, *options],
            user=user,
            cwd=directory,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_until(lambda: Path(f"{data}/postmaster.pid").exists() and _is_ready(f"{data}/postmaster.pid"))
            yield f"host={directory} user=bench dbname=postgres"
        finally:
            server.terminate()
            server.wait()


def _programs() -> Path:
    """The newest of Debian's, or what is on PATH."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"))  # noqa: PTH207
    program = found[-1] if found else shutil.which("initdb")
    if not program:
        raise ContenderFailed("no PostgreSQL server here (apt-get install postgresql)")
    return Path(program).parent


def _is_ready(pid_file: str) -> bool:
    return "ready" in Path(pid_file).read_text(encoding="utf-8")
