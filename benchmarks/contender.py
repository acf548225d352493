"""Contender: what is measured. How to start its producer and its workers, and how it was tuned."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial

from tests.support import ROOT, SOURCES, free_port, running_redis


@contextmanager
def server(*, tcp: bool = False) -> Iterator[str]:
    """The URL of a fresh Redis that keeps nothing on disk; on a unix socket, unless TCP is asked for."""
    with running_redis(port=free_port() if tcp else 0) as started:
        yield started.url


class ContenderFailed(Exception):
    """It can't run here, or its producer or its workers ended."""


@dataclass(frozen=True, kw_only=True)
class Contender:
    """
    One row of a table.

    Attributes:
        command: runs its app, which takes `produce` or `work` as the last argument.
        check: a command that prints its version, and fails where it can't run.
        tuning: what was set, beyond five threads a process.
        on_redis: its backend is a Redis, whose use can be told.
        batches: a call of user code takes many ids, and merges what is pushed for an id that waits.
    """

    name: str
    command: tuple[str, ...]
    check: tuple[str, ...]
    tuning: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    backend: Callable[[], AbstractContextManager[str]] = field(default_factory=lambda: partial(server, tcp=True))
    on_redis: bool = True
    batches: bool = False

    def environment_with(self, given: Mapping[str, str]) -> dict[str, str]:
        """Environment of its processes, without Lowkiq's and Python's settings here."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("LOWKIQ_", "PYTHON"))}
        return {**inherited, "PYTHONPATH": str(ROOT), **self.environment, **given}

    def version(self) -> str:
        """
        Which version would run.

        Raises:
            ContenderFailed: says why it can't.
        """
        environment = self.environment_with({})
        try:
            result = subprocess.run(self.check, env=environment, capture_output=True, text=True, timeout=60)  # noqa: PLW1510
        except OSError as error:
            raise ContenderFailed(f"{self.check[0]}: {error.strerror}") from None
        if result.returncode:
            raise ContenderFailed((result.stderr.strip() or f"exit code {result.returncode}").splitlines()[-1])
        return result.stdout.strip()


def lowkiq(*, tcp: bool = False) -> Contender:
    """Lowkiq for Python, from this checkout."""
    return Contender(
        name="Lowkiq",
        command=(sys.executable, "-m", "benchmarks.peers.apps.stage", "lowkiq_app"),
        check=(sys.executable, "-c", "import lowkiq.version as v; print(v.VERSION)"),
        environment={"PYTHONPATH": SOURCES},
        backend=partial(server, tcp=tcp),
        batches=True,
        tuning="as shipped: 5 threads, 5 shards a process",
    )
