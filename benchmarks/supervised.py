"""A supervisor of one node that runs an application given as text."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.support import SOURCES, SUPERVISOR


@contextmanager
def supervised(app: str, url: str) -> Iterator[psutil.Process]:
    """Runs it on that Redis until the end."""
    with tempfile.TemporaryDirectory(prefix="lowkiq-bench-") as place:
        (Path(place) / "shop.py").write_text(app, "utf-8")
        environment = os.environ | {"REDIS_URL": url, "PYTHONPATH": SOURCES}
        with (Path(place) / "log").open("wb") as log:
            command = [sys.executable, *SUPERVISOR, "-r", "shop"]
            supervisor = subprocess.Popen(command, cwd=place, env=environment, stderr=log)
        try:
            yield psutil.Process(supervisor.pid)
        finally:
            supervisor.send_signal(signal.SIGQUIT)
            supervisor.wait(30)
