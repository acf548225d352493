"""The stack that signals are handled on."""

from __future__ import annotations

import subprocess
import sys

import pytest

#: A forked child overwrites its stack, as it would by handling signals; its parent's must stay as it is.
CODE = """
import ctypes, os
from lowkiq.process import faults

faults.dump_on_faults()
start = faults._kept[1]
before = bytes(start)
if os.fork() == 0:
    ctypes.memset(start, 0x55, faults.STACK)
    os._exit(0)
os.wait()
assert bytes(start) == before
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has one")
def test_a_forked_process_handles_signals_on_a_stack_of_its_own() -> None:
    subprocess.run([sys.executable, "-c", CODE], check=True, timeout=60)
