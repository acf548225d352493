"""What a process is called."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support import SOURCES

#: Names this process, and prints what Python 3.12 and later take for its threads: the 20th word of its line.
PROGRAM = """
from lowkiq.process.title import set_title
set_title("lowkiq: node 0/2 [running]")
with open("/proc/self/stat") as file, open("/proc/self/cmdline") as title, open("/proc/self/comm") as short:
    print(file.read().split(" ")[19], title.read().strip("\\0 "), short.read().strip(), sep="|")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_python_counts_one_thread_in_a_process_that_has_a_title() -> None:
    """It splits the line at spaces, and so takes the priority for it, 20, if the short name has two of them."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={"PYTHONPATH": SOURCES},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "1|lowkiq: node 0/2 [running]|lowkiq:node-0/2"
