"""Containers of the chart, run here: the commands, variables and probes are taken from its manifests."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.deploy.helm.chart import environment
from tests.support import LOWKIQ, SOURCES, SUPERVISOR

#: The container's programs, as far as the chart runs them.
PROGRAMS = {"lowkiq-supervisor": SUPERVISOR, "lowkiq": LOWKIQ}


class Container:
    """
    A container of a manifest, on this machine.

    Args:
        directory: its own, with the application.
        elsewhere: variables whose values come from elsewhere in the cluster.
    """

    def __init__(self, manifest: Mapping[str, Any], directory: Path, **elsewhere: str) -> None:
        self._manifest = manifest
        self._directory = directory
        told = environment(manifest)
        given = {name: value for name, value in told.items() if isinstance(value, str)}
        given |= {name: elsewhere[name] for name, value in told.items() if not isinstance(value, str)}
        if "LOWKIQ_STATE_DIR" in given:
            (directory / "volume").mkdir(mode=0o777)  # as an emptyDir is
            given["LOWKIQ_STATE_DIR"] = str(directory / "volume/state")
        programs = directory / "bin"
        programs.mkdir()
        for name, command in PROGRAMS.items():
            (programs / name).write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, *command])} "$@"\n')
            (programs / name).chmod(0o755)
        path = os.pathsep.join([str(directory), SOURCES])
        self.environment = given | {"PATH": f"{programs}:/usr/bin:/bin", "PYTHONPATH": path}
        self.log = directory / "log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Container:
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [*self._manifest["command"], *self._manifest["args"]],
                cwd=self._directory, env=self.environment, stdout=log, stderr=log,
            )  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.end()

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def end(self) -> int:
        self.process.terminate()
        return self.process.wait(60)

    def run(self, *command: str) -> str:
        """Runs a command in it, as `kubectl exec` does; returns what it prints."""
        done = subprocess.run(
            command, cwd=self._directory, env=self.environment, check=False, stdout=subprocess.PIPE, text=True
        )
        return done.stdout

    def passes(self, probe: str) -> bool:
        """Runs a probe as the kubelet does; True if it succeeds."""
        told = self._manifest[f"{probe}Probe"]
        try:
            done = subprocess.run(
                told["exec"]["command"], cwd=self._directory, env=self.environment, check=False,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=told["timeoutSeconds"],
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0
