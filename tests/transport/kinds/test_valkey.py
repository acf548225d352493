"""Valkey: jobs run on it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support import free_port
from tests.transport.kinds.load import Load
from tests.transport.kinds.member import Member

# Also in CI, where there may be no package of it to install.
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("valkey-server") is None, reason="no valkey-server on PATH: install it"),
]


def test_jobs_run_on_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOWKIQ_TEST_REDIS", str(shutil.which("valkey-server")))
    server = Member(tmp_path / "server", free_port())
    server.start()
    try:
        with Load(tmp_path, f"redis://127.0.0.1:{server.port}", lease_ttl=5) as load:
            assert load.finish()[1:4] == ([], [], [])
    finally:
        server.kill()
