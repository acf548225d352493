"""The tour's example of a job that crashes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.harness import ENVIRONMENT, Supervised
from tests.support import ROOT, RedisServer


def test_the_example_runs_as_printed(tmp_path: Path, own_redis_server: RedisServer) -> None:
    section = (ROOT / "docs/tour.md").read_text("utf-8").partition("## Jobs that crash, hang or leak")[2]
    code = section.partition("```python\n")[2].partition("```")[0]
    assert len(code.splitlines()) <= 5
    (tmp_path / "crash.py").write_text(code)
    found = re.search(r"`python -c '([^`]*)'`", section)
    assert found
    with Supervised.main(tmp_path, "-r", "crash", REDIS_URL=own_redis_server.url).ready(1) as supervisor:
        environment = ENVIRONMENT | {"REDIS_URL": own_redis_server.url}
        subprocess.run([sys.executable, "-c", found[1]], cwd=tmp_path, env=environment, check=True, timeout=60)
        (failed,) = supervisor.until_logged("jobs_failed")
        assert failed["error"] == "ProcessDied: killed by SIGSEGV"
        supervisor.end()
