"""Judgement: which ends of processes end the supervisor, with real processes."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.harness import Supervised, status
from tests.support import wait_until

AT_ONCE = {"first_delay": 0.01}
#: The minute without a ready node, made short.
SOON = {"policy.last_resort.PATIENCE": 1.0}


def test_a_boot_that_may_heal_is_tried_again_also_the_first_of_all_nodes(tmp_path: Path) -> None:
    with Supervised.doing("failing_at_boot", tmp_path, nodes=2, policy=AT_ONCE) as supervisor:
        supervisor.until_logged("died_will_restart", 4)
        (tmp_path / "healed").touch()
        supervisor.until_ready(2)
        supervisor.end()


def test_a_job_that_kills_its_process_before_that_is_ready_is_no_refused_boot(tmp_path: Path) -> None:
    with Supervised.doing("poisoned", tmp_path, nodes=1, policy=AT_ONCE) as supervisor:
        supervisor.until_ready(1)
        died = supervisor.events("died_will_restart")
        assert [(line["reason"], line["kind"]) for line in died] == [("killed by SIGSEGV", "job")] * 4
        supervisor.end()


def test_a_bad_slot_never_ends_a_good_one_and_is_tried_for_ever(tmp_path: Path) -> None:
    options: dict[str, Any] = {"policy": AT_ONCE | {"longest_delay": 0.02}, "constants": SOON}
    with Supervised.doing("crashing", tmp_path, nodes=2, **options) as supervisor:
        supervisor.until_logged("died_will_restart", 20, "node 1/2")
        assert len(supervisor.events("started", "node 0/2")) == 1
        wait_until(lambda: status(tmp_path)["supervisor"]["state"] == "degraded", "the state")
        supervisor.end()


def test_strict_drains_the_others_in_a_crash_loop_and_exits_4_naming_the_slot(tmp_path: Path) -> None:
    with Supervised.doing("crashing", tmp_path, nodes=2, strict=True, policy=AT_ONCE) as supervisor:
        supervisor.ends(4)
        loop = supervisor.events("crash_loop")
        assert [(line["slot"], line["failures"]) for line in loop] == [("node 1/2", 5)]
        assert supervisor.events("ended", "node 0/2")[0]["reason"] == "exit code 0"


def test_kills_from_outside_are_no_loop_however_many(tmp_path: Path) -> None:
    with Supervised.running("obedient", tmp_path, nodes=2, policy=AT_ONCE) as supervisor:
        for kills in range(1, 8):  # more than make a loop
            os.kill(supervisor.pid("node 1/2"), signal.SIGKILL)
            supervisor.until_logged("ready", kills + 1, "node 1/2")
        assert {line["kind"] for line in supervisor.events("died_will_restart")} == {"killed"}
        assert all(line["restart_in"] < 3 for line in supervisor.events("died_will_restart"))
        supervisor.end()


def test_when_no_node_was_ready_for_a_minute_after_failures_the_exit_is_4(tmp_path: Path) -> None:
    with Supervised.doing("failing_at_boot", tmp_path, nodes=2, policy=AT_ONCE, constants=SOON) as supervisor:
        supervisor.ends(4)
        said = supervisor.events("no_node_was_ready")[0]
        assert said["slots"]["node 1/2"] == "exit code 1, failed before it was ready"


def test_a_node_that_waits_for_redis_does_not_count_against_the_minute(tmp_path: Path) -> None:
    with Supervised.doing("waiting", tmp_path, nodes=1, policy=AT_ONCE, constants=SOON) as supervisor:
        supervisor.until_logged("started", 2)
        began = time.monotonic()
        wait_until(lambda: time.monotonic() - began > 2.5, "more than the minute")
        assert psutil.pid_exists(supervisor.process.pid)
        supervisor.end()


@pytest.mark.parametrize("nodes", [1, 3])
def test_when_every_node_is_refused_for_good_at_the_first_boot_the_exit_is_3(tmp_path: Path, nodes: int) -> None:
    with Supervised.doing("refusing", tmp_path, nodes=nodes) as supervisor:
        supervisor.ends(3)
        assert supervisor.events("draining")[0]["why"] == "every node was refused at its first boot"
