"""Some hostile jobs beside innocent ones; `make hostile` has all of them, for ten minutes."""

from __future__ import annotations

import sys

import pytest

from tests import warm
from tests.support import ROOT


@pytest.mark.timeout(600)
def test_hostile_jobs_harm_no_innocent_one_and_leave_nothing_behind() -> None:
    program = [sys.executable, "-m", "tests.faults.hostile", "--minutes", "0.1", "--seed", "1"]
    done = warm.run(program, cwd=ROOT, capture_output=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
