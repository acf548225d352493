"""Redis over TCP with a password, as most people run it; all other tests use unix sockets."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from lowkiq import Lowkiq, PushFailed
from tests.support import LOWKIQ, ROOT, RedisServer

PASSWORD = "hush-hush"

APP = """
from lowkiq import Lowkiq

app = Lowkiq()


@app.worker(queue_name="jobs")
def jobs(payloads_by_id):
    pass
"""


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def test_jobs_run_over_tcp_and_the_password_is_in_no_log_or_error(tmp_path: Path, port: int) -> None:
    (tmp_path / "app.py").write_text(APP)
    server = RedisServer(tmp_path, "--bind", "127.0.0.1", "--port", str(port))
    server.start()
    try:
        server.client().config_set("requirepass", PASSWORD)
        app = Lowkiq(redis_url=f"redis://:{PASSWORD}@127.0.0.1:{port}/3")
        worker = app.worker(queue_name="jobs")(lambda _: None)
        assert worker.perform_async([{"id": number} for number in range(100)]).new == 100
        ended = subprocess.run(
            [sys.executable, *LOWKIQ, "-r", "app", "--burst"],
            cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
            env=os.environ | {"REDIS_URL": app.settings.redis_url, "LOWKIQ_REDIS_URL": "", "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        assert ended.returncode == 0, ended.stderr
        assert app.metrics()["jobs"].processed == 100
        app.close()
        stranger = Lowkiq(redis_url=f"redis://:not-{PASSWORD}@127.0.0.1:{port}/3")
        with pytest.raises(PushFailed, match="invalid username-password") as refused:
            stranger.worker(queue_name="jobs")(lambda _: None).perform_async([{"id": 1}])
        stranger.close()
        assert PASSWORD not in ended.stderr + str(refused.value)
    finally:
        server.stop()
