"""Replacing nodes on purpose, successor first: rolling restarts, recycling, and what comes in between."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.harness import Supervised, status
from tests.support import wait_until

#: A restart by the policy would be noticed.
NEVER_SOON = {"first_delay": 300, "longest_delay": 300, "longest_soon": 300}
AT_ONCE = {"first_delay": 0.01}
STEPS = ("replacing", "started", "ready", "handing_over", "ended_for_successor")


def steps(supervisor: Supervised) -> list[tuple[str, str]]:
    """The steps of nodes, in order."""
    return [(line["event"], line["slot"]) for line in supervisor.log() if line["event"] in STEPS]


def one_at_a_time(*slots: str) -> list[tuple[str, str]]:
    return [(event, slot) for slot in slots for event in STEPS]


def test_hup_replaces_one_node_after_another_successor_first(tmp_path: Path) -> None:
    with Supervised.doing("obedient", tmp_path, nodes=3, policy=NEVER_SOON) as supervisor:
        before = supervisor.until_ready(3)
        first = len(steps(supervisor))
        supervisor.send(signal.SIGHUP)
        supervisor.until_logged("rolling_restart_over")
        assert steps(supervisor)[first:] == one_at_a_time("node 0/3", "node 1/3", "node 2/3")
        after = [node["pid"] for node in status(tmp_path)["nodes"]]
        assert after == [supervisor.pid(f"node {number}/3") for number in range(3)]
        assert not set(before) & set(after)
        environment = json.loads((tmp_path / "env-2").read_text())
        assert (environment["LOWKIQ_RESTARTS"], environment["LOWKIQ_LAST_EXIT"]) == ("1", "replaced: HUP")
        supervisor.end()


def test_a_hup_during_a_roll_renews_only_what_was_started_before_it(tmp_path: Path) -> None:
    with Supervised.running("obedient", tmp_path, nodes=3, policy=NEVER_SOON) as supervisor:
        for _ in range(3):
            supervisor.send(signal.SIGHUP)
        supervisor.until_logged("rolling_restart_over")
        assert len(supervisor.events("rolling_restart")) == 1
        # Signals of one kind may arrive as one: none of the nodes is renewed more than twice.
        assert 3 <= len(supervisor.events("replacing")) <= 4


def test_a_successor_that_can_not_boot_stops_the_roll_and_no_node_ends_for_it(tmp_path: Path) -> None:
    constants = {"policy.last_resort.PATIENCE": 0.5}
    options: dict[str, Any] = {"policy": AT_ONCE, "constants": constants}
    with Supervised.doing("doomed_successor", tmp_path, nodes=3, **options) as supervisor:
        before = supervisor.until_ready(3)
        supervisor.send(signal.SIGHUP)
        line = supervisor.until_logged("roll_stopped")[0]
        assert (line["done"], line["left"]) == ([], ["node 0/3", "node 1/3", "node 2/3"])
        assert line["reason"].startswith("the successor of node 0/3 failed: exit code 3, refused to start")
        assert "restart --resume" in line["hint"]
        clock = time.monotonic()
        wait_until(lambda: time.monotonic() - clock > 2, "some time in which the old way had ended everything")
        found = status(tmp_path)
        assert [node["pid"] for node in found["nodes"]] == before
        assert (found["roll"]["state"], found["supervisor"]["healthy"]) == ("stopped", True)
        assert len(supervisor.events("replacing")) == 1

        (tmp_path / "mended").touch()
        supervisor.send(signal.SIGHUP)
        supervisor.until_logged("rolling_restart_over")
        supervisor.end()


def test_a_successor_that_fails_in_the_soak_stops_the_roll_and_the_policy_restarts_it(tmp_path: Path) -> None:
    with Supervised.running("short_lived_successor", tmp_path, nodes=2, soak=30, policy=AT_ONCE) as supervisor:
        supervisor.send(signal.SIGHUP)
        line = supervisor.until_logged("roll_stopped")[0]
        assert line["reason"].endswith("exit code 1, failed after it was ready")
        assert line["left"] == ["node 0/2", "node 1/2"]
        supervisor.until_logged("ready", 3, "node 0/2")
        assert len(supervisor.events("started", "node 1/2")) == 1
        supervisor.end()


def test_the_next_node_waits_until_the_successor_has_been_ready_for_the_soak(tmp_path: Path) -> None:
    with Supervised.running("obedient", tmp_path, nodes=2, soak=1) as supervisor:
        began = time.monotonic()
        supervisor.send(signal.SIGHUP)
        supervisor.until_logged("rolling_restart_over")
        assert time.monotonic() - began >= 2
        supervisor.end()


def test_a_successor_killed_from_outside_is_tried_again(tmp_path: Path) -> None:
    """That shows no fault of the new code."""
    with Supervised.running("obedient", tmp_path, nodes=2, soak=1, policy=AT_ONCE) as supervisor:
        supervisor.send(signal.SIGHUP)
        supervisor.until_logged("ended_for_successor")
        os.kill(supervisor.pid("node 0/2"), signal.SIGKILL)
        supervisor.until_logged("rolling_restart_over")
        assert supervisor.events("died_will_restart", "node 0/2")
        supervisor.end()


def test_a_node_that_dies_while_its_successor_boots_gives_it_its_place(tmp_path: Path) -> None:
    with Supervised.running("slowly_ready", tmp_path, nodes=1, policy=NEVER_SOON) as supervisor:
        victim = supervisor.pid("node 0/1")
        supervisor.send(signal.SIGHUP)
        supervisor.until_logged("started", 2)
        os.kill(victim, signal.SIGKILL)
        supervisor.until_logged("died_successor_takes_over")
        supervisor.until_logged("rolling_restart_over")
        assert [node["pid"] for node in status(tmp_path)["nodes"]] == [supervisor.pid("node 0/1")]
        assert len(supervisor.events("started")) == 2
        supervisor.end()


def test_a_node_that_ignores_the_roll_is_killed_and_its_name_reaches_the_successor(tmp_path: Path) -> None:
    with Supervised.running("deaf", tmp_path, nodes=1, drain_timeout=0.1, policy=NEVER_SOON) as supervisor:
        supervisor.send(signal.SIGHUP)
        supervisor.until_logged("missed_deadline")
        supervisor.until_logged("rolling_restart_over")
        supervisor.end(code=5)


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 0), (signal.SIGQUIT, 130)])
@pytest.mark.parametrize("moment", ["replacing", "started", "handing_over"])
def test_a_stop_at_any_moment_of_a_roll_ends_predecessors_and_successors(
    tmp_path: Path, moment: str, signum: signal.Signals, code: int
) -> None:
    with Supervised.running("obedient", tmp_path, nodes=3) as supervisor:
        supervisor.send(signal.SIGHUP)
        supervisor.until_logged(moment, 4 if moment == "started" else 1)
        supervisor.end(signum, code=code)


def test_a_successor_that_hangs_at_boot_is_killed_and_the_roll_stops(tmp_path: Path) -> None:
    options: dict[str, Any] = {"boot_timeout": 0.5, "constants": {"policy.limits.DUMP_TIME": 0.3}}
    with Supervised.running("hanging_successor", tmp_path, nodes=1, **options) as supervisor:
        supervisor.send(signal.SIGHUP)
        assert "hung, no beat for" in supervisor.until_logged("roll_stopped")[0]["reason"]
        assert len(supervisor.events("handing_over")) == 0
        supervisor.end()


def test_a_slot_that_waits_for_its_next_try_is_tried_at_once_by_a_restart(tmp_path: Path) -> None:
    with Supervised.running("obedient", tmp_path, nodes=2, policy=NEVER_SOON) as supervisor:
        os.kill(supervisor.pid("node 1/2"), signal.SIGKILL)
        supervisor.until_logged("died_will_restart")
        supervisor.send(signal.SIGHUP)
        supervisor.until_logged("rolling_restart_over")
        assert supervisor.events("tried_at_once")[0]["slot"] == "node 1/2"
        supervisor.end()


def test_a_slot_that_was_given_up_is_revived_by_a_restart(tmp_path: Path) -> None:
    with Supervised.running("obedient", tmp_path, nodes=2, restart="never") as supervisor:
        os.kill(supervisor.pid("node 1/2"), signal.SIGKILL)
        supervisor.until_logged("died_wont_restart")
        supervisor.send(signal.SIGHUP)
        supervisor.until_logged("started", 2, "node 1/2")


RECYCLING: dict[str, tuple[str, dict[str, Any], str]] = {
    "memory": ("hungry", {"max_rss": 100 << 20, "constants": {"policy.limits.RSS_INTERVAL": 0.1}}, "MiB of memory"),
    "jobs": ("busy", {"max_jobs": 900}, "1000 jobs, about 900 allowed"),
    "age": ("obedient", {"max_age": 1.5}, "about 2 s allowed"),
}


@pytest.mark.parametrize("kind", RECYCLING)
def test_nodes_over_a_limit_are_replaced_one_at_a_time_and_it_is_no_failure(tmp_path: Path, kind: str) -> None:
    behaviour, options, why = RECYCLING[kind]
    with Supervised.running(behaviour, tmp_path, nodes=2, policy=NEVER_SOON, **options) as supervisor:
        lines = supervisor.until_logged("replacing", 2)
        assert all(why in line["why"] for line in lines), lines
        wait_until(lambda: len([step for step in steps(supervisor) if step[0] == STEPS[-1]]) >= 2, "successors")
        slots = [line["slot"] for line in lines[:2]]
        assert steps(supervisor)[4:14] == one_at_a_time(*slots)
        supervisor.end()
        assert not supervisor.events("died_will_restart")


def test_a_recycled_node_has_no_deadline_and_its_job_ends_once(tmp_path: Path) -> None:
    """However long that takes; meanwhile its successor works, nobody else is recycled, and people are told of it."""
    options: dict[str, Any] = {"max_age": 0.5, "drain_timeout": 0.1, "policy": NEVER_SOON}
    constants = {"policy.replacement.LONG_RETIREMENT": 0.5}
    with Supervised.running("patient", tmp_path, nodes=2, constants=constants, **options) as supervisor:
        handed = supervisor.until_logged("handing_over")[0]
        told = supervisor.until_logged("retires_for_long")[0]
        assert (told["pid"], told["runs"]) == (handed["pid"], ["lowkiq:{orders:7}:"])
        clock = time.monotonic()
        wait_until(lambda: time.monotonic() - clock > 1.5, "the age of the others, and many drain timeouts")
        assert psutil.pid_exists(handed["pid"])
        assert len(supervisor.events("replacing")) == 1
        assert status(tmp_path)["supervisor"]["healthy"]
        (tmp_path / "job-has-ended").touch()
        supervisor.until_logged("ended_for_successor")
        supervisor.until_logged("handing_over", 2)
        assert not supervisor.events("missed_deadline")
        supervisor.end()


def test_a_retiring_node_does_not_keep_a_person_from_a_roll(tmp_path: Path) -> None:
    options: dict[str, Any] = {"max_age": 0.5, "drain_timeout": 0.2, "policy": NEVER_SOON}
    with Supervised.running("patient", tmp_path, nodes=1, **options) as supervisor:
        retiring = supervisor.until_logged("handing_over")[0]["pid"]
        supervisor.send(signal.SIGHUP)
        supervisor.until_logged("rolling_restart_over")
        assert psutil.pid_exists(retiring)
        assert supervisor.events("missed_deadline")[0]["pid"] != retiring
        (tmp_path / "job-has-ended").touch()
        wait_until(lambda: not psutil.pid_exists(retiring), "the end of its job")
        supervisor.end()


def test_a_retiring_node_that_is_cut_off_is_told_and_its_jobs_name_goes_to_the_successor(tmp_path: Path) -> None:
    with Supervised.running("patient", tmp_path, nodes=1, max_age=0.5, policy=NEVER_SOON) as supervisor:
        os.kill(supervisor.until_logged("handing_over")[0]["pid"], signal.SIGKILL)
        cut_off = supervisor.until_logged("cut_off_for_successor")[0]
        assert (cut_off["reason"], cut_off["slot"]) == ("killed by SIGKILL", "node 0/1")


def test_a_stop_ends_a_retiring_node_within_the_usual_deadline(tmp_path: Path) -> None:
    with Supervised.running("patient", tmp_path, nodes=1, max_age=0.5, drain_timeout=0.2) as supervisor:
        supervisor.until_logged("handing_over")
        supervisor.end(code=5)


def test_recycling_whose_successor_fails_keeps_the_node_and_is_tried_again_later(tmp_path: Path) -> None:
    with Supervised.running("doomed_successor", tmp_path, nodes=1, max_age=0.5, policy=AT_ONCE) as supervisor:
        before = supervisor.pid("node 0/1")
        supervisor.until_logged("successor_failed", 3)
        assert [node["pid"] for node in status(tmp_path)["nodes"]] == [before]
        (tmp_path / "mended").touch()
        supervisor.until_logged("ended_for_successor")
        supervisor.end()


def test_memory_is_not_looked_at_without_a_limit(tmp_path: Path) -> None:
    with Supervised.running("hungry", tmp_path, nodes=1, constants={"policy.limits.rss": "would fail"}) as supervisor:
        os.kill(supervisor.process.pid, signal.SIGTERM)
        assert supervisor.exit_code() == 0
