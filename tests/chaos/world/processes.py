"""Processes of the world: each is one that runs, is killed, and is started again."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil

from tests.support import SOURCES


class Revived:
    """A process that is started again whenever it has ended, once its time has come."""

    def __init__(self, name: str, arguments: Sequence[str], directory: Path, environment: dict[str, str]) -> None:
        self.name = name
        self._arguments = arguments
        self._directory = directory
        ours = ("REDIS", "NODE", "LOWKIQ", "COV_")
        kept = {name: value for name, value in os.environ.items() if not any(word in name for word in ours)}
        self._environment = kept | {"PYTHONPATH": SOURCES} | environment
        self.process: subprocess.Popen[bytes] | None = None
        #: Not before (monotonic).
        self.start_at = 0.0

    def start(self) -> None:
        with (self._directory / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, *self._arguments],
                cwd=self._directory, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def send(self, number: int) -> None:
        if self.process and self.is_running:
            self.process.send_signal(number)

    def end(self, within: float) -> None:
        """Gently, else not."""
        if self.process is None:
            return
        self.send(signal.SIGTERM)
        try:
            self.process.wait(within)
        except subprocess.TimeoutExpired:
            self.send(signal.SIGKILL)
            self.process.wait()

    def tree(self) -> list[int]:
        """It, and all that it has started."""
        with contextlib.suppress(psutil.Error):
            if self.process and self.is_running:
                root = psutil.Process(self.process.pid)
                return [root.pid, *(process.pid for process in root.children(recursive=True))]
        return []

    def children(self) -> list[int]:
        """Its own children: of a supervisor, the nodes (and not its guardian, which runs no jobs)."""
        with contextlib.suppress(psutil.Error):
            if self.process and self.is_running:
                children = psutil.Process(self.process.pid).children()
                return sorted(child.pid for child in children if "guardian" not in "".join(child.cmdline()))
        return []
