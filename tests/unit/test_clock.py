"""The clock by which deadlines are measured."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from lowkiq import clock

#: What a machine's clocks say after it has slept for a thousand seconds.
SLEPT = ("unshare", "--time", "--boottime", "1000", "--fork")
TELL = "import time; from lowkiq import clock; print(clock.monotonic() - time.monotonic())"


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="only Linux has it")
def test_a_lease_runs_out_while_the_machine_sleeps() -> None:
    """Redis counts that time, so a node that wakes up must, before it starts a job."""
    if subprocess.run([*SLEPT, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no time namespaces here, or not for this user")
    told = subprocess.run([*SLEPT, sys.executable, "-c", TELL], capture_output=True, text=True, check=True)
    assert float(told.stdout) > 990


def test_deadlines_are_never_compared_with_a_clock_that_people_set() -> None:
    assert clock.monotonic() <= clock.monotonic() != pytest.approx(clock.real(), rel=0.1)
