"""What the tests of deployment need of the machine: tools, root, and leave to make namespaces."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support import lacks

#: The tests that make Debian roots, build images and boot machines: minutes, root, and a network. `make test-deploy`.
ASKED_FOR = bool(os.environ.get("LOWKIQ_TEST_DEPLOY"))

slow = pytest.mark.skipif(not ASKED_FOR, reason="builds images and boots machines: make test-deploy, as root on Debian")


def need(*commands: str) -> None:
    """Skip where one is missing; fail in CI."""
    missing = [command for command in commands if shutil.which(command) is None]
    if missing:
        lacks(f"not installed here: {', '.join(missing)}")


def need_namespaces() -> None:
    """Skip where we aren't root, or where not even root may make namespaces, as in many containers."""
    if os.geteuid() != 0:
        lacks("only root can do this")
    probe = ["unshare", "--pid", "--fork", "--mount", "--net", "--ipc", "--uts", "--mount-proc", "true"]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("making namespaces is not permitted here")


def run(command: Sequence[str | Path], *, check: bool = True, **options: object) -> subprocess.CompletedProcess[str]:
    """Runs a command, and shows what it said if it fails."""
    done: subprocess.CompletedProcess[str] = subprocess.run(  # type: ignore[call-overload]
        [str(word) for word in command],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        check=False,
        **options,
    )
    if check:
        assert done.returncode == 0, f"{' '.join(map(str, command))}: {done.returncode}\n{done.stdout[-6000:]}"
    return done
