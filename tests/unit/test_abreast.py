"""Tests in several processes: each is run once and told of, also one whose process has died."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import SOURCES

pytestmark = pytest.mark.long
CONFTEST = """
from tests.abreast import run_abreast

def pytest_runtestloop(session):
    run_abreast(session, 2, lambda item: item.path)
    return True
"""
TESTS = {
    "test_a.py": "def test_well(): pass\ndef test_badly(): assert 1 == 2\n",
    "test_b.py": "import os\ndef test_well(): pass\ndef test_that_dies(): os._exit(0)\ndef test_after(): pass\n",
    "test_c.py": "import os\ndef test_directories(tmp_path): assert 'process-' in str(tmp_path.parent)\n",
}


def test_what_has_run_and_what_has_not_is_told(tmp_path: Path) -> None:
    for name, text in {"conftest.py": CONFTEST, **TESTS}.items():
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-rf", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": SOURCES}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    # Which of the two takes the third file is a matter of time; the one that dies takes none after that.
    failed = {line.split()[1] for line in done.stdout.splitlines() if line.startswith("FAILED")}
    died = {"test_b.py::test_that_dies", "test_b.py::test_after"}
    assert {"test_a.py::test_badly", *died} <= failed <= {"test_a.py::test_badly", *died, "test_c.py::test_directories"}
    assert "its process has died before its end" in done.stdout
    assert "assert 1 == 2" in done.stdout
