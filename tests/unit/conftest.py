"""The `lowkiq` command beside a Redis of the test's own, and an application that it can be given."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lowkiq import Lowkiq, Worker
from tests import warm
from tests.support import LOWKIQ, ROOT

APP = """
from lowkiq import Lowkiq

app = Lowkiq()


@app.worker(queue_name="shop", max_retry_count=0)
def shop(payloads_by_id):
    for id in payloads_by_id:
        if id.startswith("bad"):
            raise ValueError("no stock of \\x1b[31m" + id)
"""

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def queue(app: Lowkiq) -> type[Worker]:
    class Shop(Worker):
        """The producer's side."""

    return app.worker(queue_name="shop", max_retry_count=0)(Shop)


@pytest.fixture
def environment(tmp_path: Path, app: Lowkiq) -> dict[str, str]:
    (tmp_path / "jobs.py").write_text(APP)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("LOWKIQ_", "REDIS_"))}
    return inherited | {
        "LOWKIQ_REDIS_URL": app.settings.redis_url,
        "LOWKIQ_NAMESPACE": app.settings.namespace,
        "PYTHONPATH": str(ROOT),
    }


@pytest.fixture
def lowkiq(tmp_path: Path, environment: dict[str, str]) -> Run:
    def run(*arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *LOWKIQ, *arguments]
        return warm.run(command, cwd=tmp_path, env=environment | changes, capture_output=True)

    return run
