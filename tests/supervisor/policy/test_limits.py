"""Nodes that have stopped to tell that they are alive."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import psutil

from tests.harness import Supervised
from tests.support import wait_until

AT_ONCE = {"first_delay": 0.01, "failures_allowed": 1000, "longest_delay": 0.01}


def test_a_node_that_holds_the_interpreter_in_c_is_dumped_and_replaced(tmp_path: Path) -> None:
    with Supervised.running("silent", tmp_path, nodes=1, hang_timeout=0.4, policy=AT_ONCE) as supervisor:
        died = supervisor.until_logged("died_will_restart")[0]
        assert died["reason"].startswith("hung, no beat for ")
        supervisor.until_logged("started", 2, "node 0/1")
        dumped = supervisor.log_path.read_text()
        assert "Fatal Python error: Aborted" in dumped
        assert "in silent" in dumped


def test_a_node_that_is_silent_at_boot_has_its_own_limit(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "hang_timeout": 300,
        "boot_timeout": 0.4,
        "policy": {"failures_allowed": 2, "first_delay": 0.01},
        "strict": True,
    }
    with Supervised.doing("silent_at_boot", tmp_path, nodes=1, **options) as supervisor:
        assert supervisor.exit_code() == 4
        assert supervisor.events("died_will_restart")[0]["reason"].startswith("hung, no beat for ")


def test_a_stopped_node_does_not_hear_abrt_and_is_killed(tmp_path: Path) -> None:
    constants = {"policy.limits.DUMP_TIME": 0.3}
    options: dict[str, Any] = {"hang_timeout": 2, "policy": AT_ONCE, "constants": constants}
    with Supervised.running("obedient", tmp_path, nodes=2, **options) as supervisor:
        victim = supervisor.pid("node 1/2")
        os.kill(victim, signal.SIGSTOP)
        died = supervisor.until_logged("died_will_restart")[0]
        assert died["pid"] == victim
        assert died["reason"].startswith("hung, no beat for ")
        assert supervisor.events("missed_deadline")[0]["pid"] == victim
        supervisor.until_logged("ready", 2, "node 1/2")
        assert len(supervisor.events("started", "node 0/2")) == 1
        supervisor.send(signal.SIGTERM)
        assert supervisor.exit_code() == 0, "a kill that wasn't part of the drain doesn't show in the exit code"


def test_after_a_pause_of_the_whole_machine_nobody_counts_as_hung(tmp_path: Path) -> None:
    """The supervisor and its nodes are stopped for longer than the limit, and continued together."""
    with Supervised.doing("obedient", tmp_path, nodes=2, hang_timeout=2) as supervisor:
        everybody = [supervisor.process.pid, *supervisor.until_ready(2)]
        for pid in everybody:
            os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: all(psutil.Process(pid).status() == psutil.STATUS_STOPPED for pid in everybody), "the pause")
        clock = time.monotonic()
        wait_until(lambda: time.monotonic() - clock > 2.5, "the end of the pause")
        for pid in everybody:
            os.kill(pid, signal.SIGCONT)
        supervisor.send(signal.SIGUSR2)
        supervisor.until_logged("status")
        supervisor.end()
        assert not supervisor.events("hung")
