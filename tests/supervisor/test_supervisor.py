"""The supervisor with real processes, real signals and real deaths; its nodes are stand-ins (see supervised.py)."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path

import psutil
import pytest

from tests.harness import Supervised
from tests.support import wait_until
from tests.warm import COLD

#: Restarts at once, for tests that aren't about the delays.
AT_ONCE = {"first_delay": 0.01}


def test_a_killed_node_is_restarted_and_told_the_name_of_the_dead_one(tmp_path: Path) -> None:
    with Supervised.running("obedient", tmp_path, nodes=2, policy=AT_ONCE) as supervisor:
        victim = supervisor.pid("node 1/2")
        os.kill(victim, signal.SIGKILL)
        supervisor.until_logged("ready", 2, "node 1/2")

        died = supervisor.events("died_will_restart")[0]
        assert (died["slot"], died["pid"], died["reason"]) == ("node 1/2", victim, "killed by SIGKILL")
        dead = json.loads((tmp_path / "env-1").read_text())["dead_nodes"]
        assert [name.split(":")[1] for name in dead] == [str(victim)]
        supervisor.end()


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_term_and_first_int_drain_and_exit_0(tmp_path: Path, signum: signal.Signals) -> None:
    with Supervised.running("obedient", tmp_path, nodes=2) as supervisor:
        supervisor.end(signum)
        assert [line["reason"] for line in supervisor.events("ended")] == ["exit code 0"] * 2


def test_a_node_that_ignores_term_is_killed_at_the_deadline_and_the_exit_is_5(tmp_path: Path) -> None:
    with Supervised.running("deaf", tmp_path, nodes=2, drain_timeout=0.1) as supervisor:
        supervisor.end(code=5)
        assert {line["slot"] for line in supervisor.events("missed_deadline")} == {
            "node 0/2",
            "node 1/2",
        }


def test_a_node_that_has_not_heard_term_is_told_again_until_it_has(tmp_path: Path) -> None:
    """A library may have had it just then; more than that would end what a node does at its end."""
    with Supervised.running("hard_of_hearing", tmp_path, nodes=2) as supervisor:
        supervisor.end()
        assert [line["reason"] for line in supervisor.events("ended")] == ["exit code 0"] * 2


@pytest.mark.parametrize("order", [[signal.SIGINT, signal.SIGINT], [signal.SIGQUIT]], ids=["second INT", "QUIT"])
def test_second_int_and_quit_abandon_and_exit_130(tmp_path: Path, order: list[signal.Signals]) -> None:
    with Supervised.running("deaf", tmp_path, nodes=1, drain_timeout=300) as supervisor:
        supervisor.send(order[0])
        supervisor.until_logged("draining")
        if len(order) > 1:
            wait_until(lambda: supervisor.send(order[1]) or supervisor.events("abandoning"))
        supervisor.ends(130)


def test_tstp_quietens_nodes_also_those_that_come_later(tmp_path: Path) -> None:
    with Supervised.running("obedient", tmp_path, nodes=1, policy=AT_ONCE) as supervisor:
        supervisor.send(signal.SIGTSTP)
        wait_until((tmp_path / "quiet-0").exists)
        (tmp_path / "quiet-0").unlink()
        os.kill(supervisor.pid("node 0/1"), signal.SIGKILL)
        supervisor.until_logged("ready", 2)
        wait_until((tmp_path / "quiet-0").exists)


def test_a_burst_restarts_crashed_nodes_and_ends_when_all_have_finished(tmp_path: Path) -> None:
    with Supervised.doing("burst", tmp_path, nodes=2, burst=True, policy=AT_ONCE) as supervisor:
        assert supervisor.exit_code() == 0
        assert len(supervisor.events("died_will_restart")) == 2
        assert {path.name for path in tmp_path.glob("finished-*")} == {"finished-0", "finished-1"}


def test_never_restarts_nothing_and_says_by_its_exit_that_something_failed(tmp_path: Path) -> None:
    with Supervised.doing("burst", tmp_path, nodes=1, burst=True, restart="never") as supervisor:
        assert supervisor.exit_code() == 4
        assert len(supervisor.events("started")) == 1


def test_sigkill_of_the_supervisor_leaves_no_node_alive(tmp_path: Path) -> None:
    with Supervised.running("deaf", tmp_path, nodes=3) as supervisor:
        supervisor.process.kill()
        assert supervisor.nothing_is_left()


def test_what_a_killed_node_has_started_goes_with_it(tmp_path: Path) -> None:
    with Supervised.running("parent", tmp_path, nodes=1, policy=AT_ONCE) as supervisor:
        node = supervisor.pid("node 0/1")
        grandchildren = wait_until(psutil.Process(node).children)
        os.kill(node, signal.SIGKILL)
        wait_until(lambda: not any(child.is_running() for child in grandchildren), "the end of the grandchild")
        supervisor.end()


def test_a_signal_at_any_moment_of_boot_leaves_no_process(tmp_path: Path) -> None:
    """A few times with a whole interpreter; test_orphans has hundreds without."""
    luck = random.Random(1)
    for turn in range(6):
        directory = tmp_path / str(turn)
        directory.mkdir()
        with Supervised.doing("slow_boot", directory, environment=COLD, nodes=2, drain_timeout=1) as supervisor:
            supervisor.until_logged("started")
            time.sleep(luck.uniform(0, 0.12))  # not to wait for something: this is the random moment
            supervisor.send(luck.choice([signal.SIGTERM, signal.SIGINT]))
            supervisor.ends(0)


def test_an_idle_supervisor_keeps_no_descriptor_of_nodes_that_died(tmp_path: Path) -> None:
    patient = {"longest_delay": 0.01, "failures_allowed": 1000}
    with Supervised.running("obedient", tmp_path, nodes=1, policy=patient) as supervisor:
        process = psutil.Process(supervisor.process.pid)
        before = process.num_fds()
        for deaths in range(1, 20):
            os.kill(supervisor.pid("node 0/1"), signal.SIGKILL)
            supervisor.until_logged("ready", deaths + 1)
        assert process.num_fds() == before
        assert [child.status() for child in process.children()].count(psutil.STATUS_ZOMBIE) == 0


def test_without_pidfds_deaths_are_noticed_by_sigchld(tmp_path: Path) -> None:
    with Supervised.running("obedient", tmp_path, nodes=2, pidfds=False, policy=AT_ONCE) as supervisor:
        os.kill(supervisor.pid("node 0/2"), signal.SIGKILL)
        supervisor.until_logged("ready", 2, "node 0/2")
        supervisor.end()


def test_a_bug_of_the_supervisor_kills_every_node_and_exits_1(tmp_path: Path) -> None:
    with Supervised.running("obedient", tmp_path, nodes=2, policy={"first_delay": "broken"}) as supervisor:
        os.kill(supervisor.pid("node 0/2"), signal.SIGKILL)
        supervisor.ends(1)
        assert "TypeError" in supervisor.events("supervisor_failed")[0]["exception"]


def test_a_planned_recycle_is_replaced_at_once(tmp_path: Path) -> None:
    """However often: it is no failure."""
    with Supervised.doing("recycling", tmp_path, nodes=1, policy={"first_delay": 300}) as supervisor:
        supervisor.until_logged("started", 8, "node 0/1")
        supervisor.end()


def test_an_idle_supervisor_is_not_woken_by_its_own_clock(tmp_path: Path) -> None:
    """Its nodes don't beat in this test; what is left are its own deadlines, the next in half a minute."""
    with Supervised.running("calm", tmp_path, nodes=4) as supervisor:
        process = psutil.Process(supervisor.process.pid)
        wait_until(lambda: process.status() == psutil.STATUS_SLEEPING, "its rest")
        before, began = process.num_ctx_switches().voluntary, time.monotonic()
        wait_until(lambda: time.monotonic() - began > 1.5, "some time to be woken in")
        assert process.num_ctx_switches().voluntary - before <= 2


def test_sigkill_of_the_supervisor_ends_what_jobs_have_started(tmp_path: Path) -> None:
    with Supervised.running("parent", tmp_path, nodes=2) as supervisor:
        nodes = [psutil.Process(supervisor.pid(f"node {number}/2")) for number in (0, 1)]
        for node in nodes:
            wait_until(node.children)
        supervisor.process.kill()
        assert supervisor.nothing_is_left()


def test_a_guardian_that_was_killed_is_replaced(tmp_path: Path) -> None:
    with Supervised.running("parent", tmp_path, nodes=1, policy=AT_ONCE) as supervisor:
        wait_until(lambda: guardians(supervisor))[0].kill()
        os.kill(supervisor.pid("node 0/1"), signal.SIGKILL)
        supervisor.until_logged("ready", 2, "node 0/1")
        wait_until(lambda: guardians(supervisor))
        wait_until(psutil.Process(supervisor.pid("node 0/1")).children)
        supervisor.process.kill()
        assert supervisor.nothing_is_left()


def guardians(supervisor: Supervised) -> list[psutil.Process]:
    children = psutil.Process(supervisor.process.pid).children()
    return [child for child in children if "guardian" in "".join(child.cmdline())]
