"""Replacing nodes on purpose: rolling restarts, recycling, and what comes in between."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.harness import Supervised
from tests.support import wait_until

#: A restart by the policy would be noticed.
NEVER_SOON = {"first_delay": 300, "longest_delay": 300}


def steps(supervisor: Supervised) -> list[tuple[str, str]]:
    """The steps of nodes, in order."""
    events = ("started", "ready", "replacing", "ended_for_successor")
    return [(line["event"], line["slot"]) for line in supervisor.log() if line["event"] in events]


def one_at_a_time(supervisor: Supervised, *slots: str) -> list[tuple[str, str]]:
    return [(event, slot) for slot in slots for event in ("replacing", "ended_for_successor", "started", "ready")]


def test_hup_restarts_one_node_after_another_each_ready_before_the_next(tmp_path: Path) -> None:
    with Supervised.doing("obedient", tmp_path, nodes=3, policy=NEVER_SOON) as supervisor:
        before = supervisor.until_ready(3)
        first = len(steps(supervisor))
        supervisor.send(signal.SIGHUP)
        supervisor.until_logged("rolling_restart_over")
        assert steps(supervisor)[first:] == one_at_a_time(supervisor, "node 0/3", "node 1/3", "node 2/3")
        assert not set(before) & {supervisor.pid(f"node {number}/3") for number in range(3)}
        dead = json.loads((tmp_path / "env-2").read_text())["dead_nodes"]
        assert [name.split(":")[1] for name in dead] == [str(before[2])]


def test_a_hup_during_a_roll_renews_only_what_was_started_before_it(tmp_path: Path) -> None:
    with Supervised.running("obedient", tmp_path, nodes=3, policy=NEVER_SOON) as supervisor:
        for _ in range(3):
            supervisor.send(signal.SIGHUP)
        supervisor.until_logged("rolling_restart_over")
        assert len(supervisor.events("rolling_restart")) == 1
        # Signals of one kind may arrive as one: none of the nodes is renewed more than twice.
        assert 3 <= len(supervisor.events("replacing")) <= 4


def test_a_successor_that_fails_stops_the_roll_and_the_policy_applies(tmp_path: Path) -> None:
    with Supervised.running("doomed_successor", tmp_path, nodes=3, policy=NEVER_SOON) as supervisor:
        supervisor.send(signal.SIGHUP)
        line = supervisor.until_logged("successor_failed")[0]
        assert (line["slot"], line["left"]) == ("node 0/3", ["node 1/3", "node 2/3"])
        assert supervisor.until_logged("died_will_restart")[0]["slot"] == "node 0/3"
        supervisor.end()
        assert len(supervisor.events("replacing")) == 1


def test_a_node_that_ignores_the_roll_is_killed_and_replaced(tmp_path: Path) -> None:
    with Supervised.running("deaf", tmp_path, nodes=1, drain_timeout=0.1, policy=NEVER_SOON) as supervisor:
        supervisor.send(signal.SIGHUP)
        supervisor.until_logged("missed_deadline")
        supervisor.until_logged("ready", 2, "node 0/1")


def test_term_during_a_roll_drains_everything(tmp_path: Path) -> None:
    with Supervised.running("obedient", tmp_path, nodes=3) as supervisor:
        supervisor.send(signal.SIGHUP)
        supervisor.until_logged("replacing")
        supervisor.end()


def test_a_slot_that_was_given_up_is_revived_by_a_restart(tmp_path: Path) -> None:
    policy = {"first_delay": 0.01, "failures_allowed": 2}
    with Supervised.doing("crashing", tmp_path, nodes=2, degraded=True, policy=policy) as supervisor:
        supervisor.until_logged("crash_loop")
        starts = len(supervisor.events("started", "node 1/2"))
        supervisor.send(signal.SIGHUP)
        supervisor.until_logged("started", starts + 1, "node 1/2")


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
        wait_until(lambda: len([step for step in steps(supervisor) if step[0] == "ready"]) >= 4, "successors")
        slots = [line["slot"] for line in lines[:2]]
        assert steps(supervisor)[4:12] == one_at_a_time(supervisor, *slots)
        supervisor.end()
        assert not supervisor.events("died_will_restart")


def test_memory_is_not_looked_at_without_a_limit(tmp_path: Path) -> None:
    with Supervised.running("hungry", tmp_path, nodes=1, constants={"policy.limits.rss": "would fail"}) as supervisor:
        os.kill(supervisor.process.pid, signal.SIGTERM)
        assert supervisor.exit_code() == 0
