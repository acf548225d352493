"""Chance and endurance: signals at any moment, thousands of forks, and processes that nobody started here."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.harness import Supervised
from tests.support import ROOT, SOURCES, wait_until

#: How often TERM meets a booting supervisor; the full proof is 300 times.
ROUNDS = int(os.environ.get("LOWKIQ_TEST_ROUNDS", "100"))
#: Processes that are born and die under one supervisor; the full proof is 5,000.
CYCLES = int(os.environ.get("LOWKIQ_TEST_CYCLES", "300"))

AT_ONCE = {"first_delay": 0.01}


@pytest.mark.timeout(300 + ROUNDS)
def test_term_at_any_moment_of_boot_ends_with_0_and_leaves_no_process(tmp_path: Path) -> None:
    answer = subprocess.run(
        [sys.executable, str(ROOT / "tests/supervisor/rounds.py"), str(ROUNDS), "1"],
        env={**os.environ, "PYTHONPATH": SOURCES},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(answer.stdout) == {"exit code 0": ROUNDS}, answer.stderr


@pytest.mark.timeout(1_800)
def test_thousands_of_ends_leave_no_zombie_and_no_descriptor(tmp_path: Path) -> None:
    with Supervised.doing("one_cycle", tmp_path, nodes=1) as supervisor:
        process = psutil.Process(supervisor.process.pid)
        cycles = tmp_path / "cycles"
        wait_until(lambda: cycles.exists() and cycles.stat().st_size > 5, "the first cycles")
        wait_until(lambda: cycles.stat().st_size >= CYCLES, "the last cycle")
        wait_until(lambda: process.num_fds() <= 16, "few descriptors")
        assert len(process.children()) <= 2, "a node, and the guardian"
        supervisor.end()


def test_a_process_that_a_node_left_behind_is_reaped_and_takes_nobody_s_place(tmp_path: Path) -> None:
    with Supervised.running("abandoning", tmp_path, nodes=2, policy=AT_ONCE) as supervisor:
        orphan = int(wait_until((tmp_path / "orphan").exists) and wait_until((tmp_path / "orphan").read_text))
        wait_until(lambda: not psutil.pid_exists(orphan), "the reaping of the orphan")
        os.kill(supervisor.pid("node 1/2"), signal.SIGKILL)
        assert supervisor.until_logged("died_will_restart")[0]["reason"] == "killed by SIGKILL"
        supervisor.until_logged("ready", 2, "node 1/2")
        supervisor.end()


@pytest.fixture
def unshare() -> list[str]:
    """The command that makes the next one process 1 of its own world."""
    if shutil.which("unshare") is None:
        if os.environ.get("CI"):
            pytest.fail("unshare (util-linux) is missing")
        pytest.skip("no unshare here")
    words = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if subprocess.run([*words, "true"], capture_output=True, check=False).returncode:
        pytest.skip("making a pid namespace is not permitted here")
    return words


def test_as_process_1_it_reaps_everything_and_ends_by_term(tmp_path: Path, unshare: list[str]) -> None:
    with Supervised.running("abandoning", tmp_path, wrapper=unshare, nodes=2) as supervisor:
        inner = wait_until(psutil.Process(supervisor.process.pid).children)[0]
        wait_until((tmp_path / "orphan").exists)
        wait_until(lambda: len(inner.children(recursive=True)) == 3, "two nodes, the guardian, and no orphan")
        inner.send_signal(signal.SIGTERM)
        supervisor.ends(0)
        assert {line["supervisor"] for line in supervisor.events("dump")} <= {1}
