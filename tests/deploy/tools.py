"""Needs of the tests of deployment: tools, root, leave to make namespaces, jobs, and a wheel of this checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support import ROOT, lacks

#: The tests that make Debian roots, build images and boot machines: minutes, root, and a network. `make test-deploy`.
ASKED_FOR = bool(os.environ.get("LOWKIQ_TEST_DEPLOY"))

#: Jobs that do what they are told, and say in Redis what came of it: they can't write where we could read.
JOBS = """
import os, subprocess, time
from pathlib import Path
from lowkiq import Lowkiq

app = Lowkiq()


@app.worker(queue_name="do", shards_count=4)
def do(payloads_by_id):
    for id, payloads in payloads_by_id.items():
        app.redis().set(f"began:{id}", os.getpid())
        app.redis().set(f"ended:{id}", outcome(payloads[-1]))


def outcome(order):
    if "variable" in order:
        return os.environ[order["variable"]]
    if "run" in order:
        return subprocess.run(["sh", "-c", order["run"]], stdout=subprocess.PIPE).stdout
    while "wait_for" in order and not app.redis().exists(order["wait_for"]):
        time.sleep(0.02)
    try:
        if "write" in order:
            Path(order["write"]).write_text("here")
        if "list" in order:
            os.listdir(order["list"])
    except OSError as error:
        return error.strerror
    return "done"
"""

slow = pytest.mark.skipif(not ASKED_FOR, reason="builds images and boots machines: make test-deploy, as root on Debian")


def need(*commands: str) -> None:
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


def pushing(id: str, order: dict[str, str]) -> str:
    """Program that pushes an order for JOBS, which are in shop/jobs.py."""
    return f"from shop.jobs import do; do.perform_async([{{'id': {id!r}, 'payload': {order!r}}}])"


def wheel(directory: Path) -> Path:
    """This checkout's: the one in LOWKIQ_WHEEL, or one built here."""
    if given := os.environ.get("LOWKIQ_WHEEL"):
        return Path(given)
    run([sys.executable, "-m", "build", "--wheel", "--outdir", directory, ROOT], cwd=directory, timeout=300)
    (built,) = directory.glob("*.whl")
    return built
