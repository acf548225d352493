"""Runs a supervisor as a process, watches its log, and knows whether anything of it is still alive."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import psutil

from lowkiq_supervisor.control.client import ask
from tests import warm
from tests.support import BUDGET, ROOT, SOURCES, SUPERVISOR, wait_until

SCRIPT = ROOT / "tests/supervisor/supervised.py"
ENVIRONMENT = {"PYTHONPATH": SOURCES, "PATH": os.environ["PATH"], "TERM": "xterm"}
#: Seconds that a supervisor may take to end.
PATIENCE = BUDGET


def state_dir(directory: Path) -> Path:
    """The state directory of a supervisor that runs in this directory and was told no other."""
    return directory / ".lowkiq"


def status(directory: Path) -> dict[str, Any]:
    """The status of such a supervisor."""
    return ask(state_dir(directory), "status")


def command(directory: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `lowkiq-supervisor` to its end."""
    return warm.run(
        [sys.executable, *SUPERVISOR, *arguments], cwd=directory, env=ENVIRONMENT | environment, capture_output=True
    )


class Supervised:
    """One supervisor's process. Everything it forks inherits a pipe, whose end tells that all of it are gone."""

    def __init__(
        self,
        directory: Path,
        arguments: list[str],
        environment: dict[str, str] | None = None,
        wrapper: Sequence[str] = (),
    ) -> None:
        self.log_path = directory / "supervisor.log"
        self._alive, descendants = os.pipe()
        plain = {name: value for name, value in os.environ.items() if "REDIS" not in name and "NODE" not in name}
        with self.log_path.open("w") as log:
            self.process = warm.popen(
                [*wrapper, sys.executable, *arguments],
                cwd=directory,
                stderr=log,
                stdin=subprocess.DEVNULL,
                pass_fds=[descendants],
                env=plain | {"PYTHONPATH": SOURCES} | (environment or {}),
            )
        os.close(descendants)

    @classmethod
    def doing(
        cls,
        behaviour: str,
        directory: Path,
        *,
        environment: dict[str, str] | None = None,
        wrapper: Sequence[str] = (),
        **options: Any,
    ) -> Supervised:
        """A supervisor whose nodes behave like this function of supervised.py."""
        return cls(directory, [str(SCRIPT), behaviour, json.dumps(options)], environment, wrapper)

    @classmethod
    def main(cls, directory: Path, *arguments: str, **environment: str) -> Supervised:
        """One with real nodes, as people start it."""
        return cls(directory, [*SUPERVISOR, *arguments], {"LOWKIQ_SOAK": "0"} | environment)

    @classmethod
    def with_constants(
        cls, constants: Mapping[str, float], directory: Path, *arguments: str, **environment: str
    ) -> Supervised:
        """The same, but for constants such as {"policy.load.GROW_AFTER": 1}."""
        start = [str(ROOT / "tests/supervisor/hasty.py"), json.dumps(constants)]
        return cls(directory, [*start, *arguments], {"LOWKIQ_SOAK": "0"} | environment)

    @classmethod
    def running(cls, behaviour: str, directory: Path, **options: Any) -> Supervised:
        """One like `doing`, all of whose nodes are ready."""
        return cls.doing(behaviour, directory, **options).ready(options.get("nodes", 1))

    def ready(self, nodes: int) -> Supervised:
        """Itself, once this many nodes are ready."""
        try:
            self.until_ready(nodes)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._alive)

    def log(self) -> list[dict[str, Any]]:
        """The lines of its log so far."""
        lines = self.log_path.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]

    def events(self, event: str, slot: str | None = None) -> list[dict[str, Any]]:
        """The log's lines of one kind."""
        return [line for line in self.log() if line["event"] == event and slot in {None, line.get("slot")}]

    def until_logged(self, event: str, times: int = 1, slot: str | None = None) -> list[dict[str, Any]]:
        """Wait for a line in the log."""

        def logged() -> bool:
            return len(self.events(event, slot)) >= times or self.process.poll() is not None

        wait_until(logged, f"{event} ({times} times)")
        found = self.events(event, slot)
        assert len(found) >= times, f"ended without {event} ({times} times):\n{self.log_path.read_text()}"
        return found

    def until_ready(self, nodes: int) -> list[int]:
        """Wait until this many nodes are ready; their pids."""
        wait_until(lambda: len(self._of_nodes("ready")) >= nodes or self.process.poll() is not None, "ready")
        assert len(self._of_nodes("ready")) >= nodes, f"ended before it was ready:\n{self.log_path.read_text()}"
        return [line["pid"] for line in self._of_nodes("started")]

    def _of_nodes(self, event: str) -> list[dict[str, Any]]:
        """The supervisor's lines about nodes; their own have no slot."""
        return [line for line in self.events(event) if line.get("slot", "").startswith("node ")]

    def pid(self, slot: str) -> int:
        """The last process of the slot."""
        return int(self.events("started", slot)[-1]["pid"])

    def title(self) -> str:
        """The title of its own process."""
        return " ".join(psutil.Process(self.process.pid).cmdline())

    def send(self, signum: signal.Signals) -> None:
        self.process.send_signal(signum)

    def end(self, signum: signal.Signals = signal.SIGTERM, *, code: int = 0) -> None:
        """Signal it: it exits with this code, and leaves no process."""
        self.send(signum)
        self.ends(code)

    def ends(self, code: int) -> None:
        """Wait for its end: it exits with this code, and leaves no process."""
        assert self.exit_code() == code, self.log_path.read_text()
        assert self.nothing_is_left()

    def exit_code(self) -> int:
        """Wait for its end."""
        return self.process.wait(PATIENCE)

    def is_gone(self) -> bool:
        """True if no process of it is left."""
        poll = select.poll()
        poll.register(self._alive, select.POLLIN)
        return bool(poll.poll(0)) and os.read(self._alive, 1) == b""

    def nothing_is_left(self) -> bool:
        """Wait until no process of it is left."""
        return wait_until(self.is_gone, "the end of every process")
