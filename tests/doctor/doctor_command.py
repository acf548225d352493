"""Runs `lowkiq doctor` as people do, and reads what it says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests import warm
from tests.support import LOWKIQ, ROOT

APP = """
from lowkiq import Lowkiq

app = Lowkiq()


@app.worker(queue_name="shop", shards_count=2)
def shop(payloads_by_id):
    pass
"""
#: Seconds within which it must end, whatever Redis does, on a slow machine.
PATIENCE = 60


class Told:
    """What it said."""

    def __init__(self, ended: subprocess.CompletedProcess[str]) -> None:
        assert "Traceback" not in ended.stderr, ended.stderr
        self.code, self.output = ended.returncode, ended.stdout
        self._findings = json.loads(ended.stdout)["findings"] if ended.stdout.startswith("{") else []

    def of(self, check: str) -> list[dict[str, Any]]:
        return [finding for finding in self._findings if finding["check"] == check]

    def checks(self, *levels: str) -> set[str]:
        return {finding["check"] for finding in self._findings if finding["level"] in levels}


class Doctor:
    """The command, in a directory with an application, for the Redis at that URL."""

    def __init__(self, directory: Path, url: str) -> None:
        self._directory = directory
        self._url = url

    def __call__(self, *arguments: str, as_json: bool = True, **changes: str) -> Told:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("LOWKIQ_", "REDIS_"))}
        environment = {"LOWKIQ_REDIS_URL": self._url, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, *LOWKIQ, "doctor", *(arguments or ("-r", "jobs"))]
        ended = warm.run(
            [*command, "--json"] if as_json else command,
            cwd=self._directory,
            env=inherited | environment | changes,
            capture_output=True,
            timeout=PATIENCE,
        )
        return Told(ended)
