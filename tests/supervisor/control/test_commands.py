"""The subcommands of `lowkiq-supervisor`, against a supervisor with stand-ins for nodes."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from lowkiq_supervisor.control.client import ask
from lowkiq_supervisor.errors import CommandRefused
from tests.harness import ENVIRONMENT, Supervised, command, state_dir, status
from tests.support import SUPERVISOR, wait_until

AT_ONCE = {"first_delay": 0.01}


def test_status_shows_every_node_and_exits_0(tmp_path: Path) -> None:
    with Supervised.running("busy", tmp_path, nodes=2) as supervisor:
        found = wait_until(lambda: (now := status(tmp_path))["nodes"][1]["busy"] == 3 and now, "three busy threads")
        own, node = found["supervisor"], found["nodes"][1]
        assert (own["pid"], own["state"], own["nodes"], own["healthy"]) == (supervisor.process.pid, "running", 2, True)
        assert (node["slot"], node["node_number"], node["pid"]) == (1, 1, supervisor.pid("node 1/2"))
        assert (node["state"], node["jobs"], node["restarts"], node["last_exit"]) == ("ready", 1000, 0, None)
        assert node["beat_age"] < 60
        assert node["rss"] > 1 << 20

        shown = command(tmp_path, "status")
        assert shown.returncode == 0
        assert f"supervisor {supervisor.process.pid}  running" in shown.stdout
        rows = [line.split() for line in shown.stdout.splitlines()[2:4]]
        assert [row[:4] for row in rows] == [
            [str(i), str(i), str(supervisor.pid(f"node {i}/2")), "ready"] for i in (0, 1)
        ]
        machine = command(tmp_path, "status", "--json")
        assert json.loads(machine.stdout)["nodes"][0]["pid"] == supervisor.pid("node 0/2")


def test_status_exits_1_when_degraded_and_says_why_and_when_it_is_tried_again(tmp_path: Path) -> None:
    with Supervised.running(
        "obedient", tmp_path, nodes=2, policy={"first_delay": 1_500, "longest_delay": 300, "longest_soon": 300}
    ) as supervisor:
        os.kill(supervisor.pid("node 1/2"), signal.SIGKILL)
        supervisor.until_logged("died_will_restart")
        shown = command(tmp_path, "status")
        assert shown.returncode == 1
        row = shown.stdout.splitlines()[3]
        assert "backoff" in row
        assert re.search(r"try 2 in [23]\d\d s: killed by SIGKILL, ended from outside$", row)
        event, died = next(line for line in shown.stdout.splitlines() if "died_will_restart" in line), status(tmp_path)
        assert "node 1/2" in event and "kind=killed" in event
        assert died["events"][-1]["facts"]["reason"] == "killed by SIGKILL"
        node = status(tmp_path)["nodes"][1]
        assert 200 < node["next_retry"] < 400
        assert status(tmp_path)["supervisor"]["state"] == "degraded"
        process = psutil.Process(supervisor.process.pid)
        wait_until(lambda: process.cmdline()[0] == "lowkiq: supervisor 2 nodes [degraded]", "the title")


@pytest.mark.parametrize("arguments", [["status"], ["status", "--json"], ["dump"], ["quiet"], ["restart"], ["stop"]])
def test_every_command_exits_2_when_nobody_is_there(tmp_path: Path, arguments: list[str]) -> None:
    answer = command(tmp_path, *arguments, "--state-dir", "elsewhere")
    assert answer.returncode == 2
    assert f"no supervisor at {tmp_path}/elsewhere/control.sock" in answer.stderr


def test_status_exits_2_when_a_dead_supervisor_left_its_socket_and_the_next_one_replaces_it(tmp_path: Path) -> None:
    with Supervised.running("obedient", tmp_path) as first:
        first.process.kill()
        assert first.nothing_is_left()
        assert (state_dir(tmp_path) / "control.sock").is_socket()
        assert command(tmp_path, "status").returncode == 2
    with Supervised.running("obedient", tmp_path) as second:
        assert status(tmp_path)["supervisor"]["pid"] == second.process.pid


def test_watch_refreshes_until_interrupted(tmp_path: Path) -> None:
    with Supervised.running("obedient", tmp_path):
        ours, theirs = pty.openpty()
        os.set_blocking(ours, False)
        watch = subprocess.Popen(
            [sys.executable, *SUPERVISOR, "status", "--watch"], cwd=tmp_path, env=ENVIRONMENT, stdout=theirs
        )
        seen = bytearray()

        def read() -> int:
            with contextlib.suppress(BlockingIOError):
                seen.extend(os.read(ours, 65536))
            return seen.count(b"supervisor")

        wait_until(lambda: read() >= 2, "the second table")
        watch.send_signal(signal.SIGINT)
        assert watch.wait(60) == 0
        os.close(ours)
        os.close(theirs)


def test_dump_prints_the_files_that_nodes_have_written(tmp_path: Path) -> None:
    with Supervised.doing("obedient", tmp_path, nodes=2) as supervisor:
        pids = supervisor.until_ready(2)
        answer = command(tmp_path, "dump")
        assert answer.returncode == 0
        assert {Path(line).name for line in answer.stdout.splitlines()} == {f"dump-now-{pid}-x.txt" for pid in pids}


@pytest.mark.parametrize("has_py_spy", [True, False])
def test_a_node_that_can_not_dump_itself_is_told_of_at_once(tmp_path: Path, has_py_spy: bool) -> None:
    """What holds the interpreter lock, or is stopped, answers nobody."""
    with Supervised.running("obedient", tmp_path, nodes=1) as supervisor:
        pid = supervisor.pid("node 0/1")
        os.kill(pid, signal.SIGSTOP)
        binaries = tmp_path / "bin"
        binaries.mkdir()
        if has_py_spy:
            (binaries / "py-spy").write_text('#!/bin/sh\necho "spied: $*"\n')
            (binaries / "py-spy").chmod(0o755)
        answer = command(tmp_path, "dump", PATH=f"{binaries}:/usr/bin:/bin")
        assert f"node {pid} doesn't answer" in answer.stderr
        if has_py_spy:
            assert (answer.returncode, answer.stdout) == (0, f"spied: dump --native --pid {pid}\n\n")
        else:
            assert (answer.returncode, "pip install py-spy" in answer.stderr) == (1, True)
        os.kill(pid, signal.SIGCONT)


def test_quiet_is_told_to_all_and_is_a_healthy_state(tmp_path: Path) -> None:
    with Supervised.running("obedient", tmp_path, nodes=2):
        assert command(tmp_path, "quiet").returncode == 0
        wait_until((tmp_path / "quiet-1").exists)
        wait_until(lambda: {node["state"] for node in status(tmp_path)["nodes"]} == {"quiet"}, "quiet nodes")
        assert status(tmp_path)["supervisor"]["state"] == "quiet"
        assert command(tmp_path, "status").returncode == 0


def test_a_slot_that_has_ended_well_is_not_restarted(tmp_path: Path) -> None:
    with Supervised.doing("obedient", tmp_path, nodes=2, restart="on-failure") as supervisor:
        first, _ = supervisor.until_ready(2)
        os.kill(first, signal.SIGTERM)
        wait_until(lambda: status(tmp_path)["nodes"][0]["state"] == "exited", "an end")
        answer = command(tmp_path, "restart", "0")
        assert (answer.returncode, answer.stdout) == (1, "")
        assert "slot 0 has ended (exit code 0), and is not started again: --restart" in answer.stderr
        assert command(tmp_path, "restart").stdout.splitlines()[-1] == "restarting one after another: slots 1"


def test_what_does_not_exist_is_refused_with_what_does(tmp_path: Path) -> None:
    with Supervised.running("obedient", tmp_path, nodes=2):
        answer = command(tmp_path, "restart", "2")
        assert (answer.returncode, answer.stderr) == (1, "lowkiq-supervisor: no slot 2: there are 0 to 1\n")
        with pytest.raises(CommandRefused, match="unknown command 'dance': status, ping"):
            ask(state_dir(tmp_path), "dance")


@pytest.mark.parametrize(("behaviour", "code"), [("obedient", 0), ("deaf", 5)])
def test_stop_waits_for_the_end_and_exits_with_the_supervisor_s_code(tmp_path: Path, behaviour: str, code: int) -> None:
    with Supervised.running(behaviour, tmp_path, nodes=2, drain_timeout=0.1) as supervisor:
        answer = command(tmp_path, "stop")
        assert answer.returncode == code
        assert supervisor.exit_code() == code
        assert not (state_dir(tmp_path) / "control.sock").exists()


def test_usr2_writes_the_status_to_the_log(tmp_path: Path) -> None:
    with Supervised.running("obedient", tmp_path, nodes=2) as supervisor:
        supervisor.send(signal.SIGUSR2)
        line = supervisor.until_logged("status")[0]
        assert (line["state"], [node["state"] for node in line["nodes"]]) == ("running", ["ready", "ready"])


def test_ttin_is_passed_on_to_every_node_a_hundred_times(tmp_path: Path) -> None:
    with Supervised.doing("obedient", tmp_path, nodes=2, policy=AT_ONCE) as supervisor:
        pids = supervisor.until_ready(2)
        for turn in range(1, 101):
            supervisor.send(signal.SIGTTIN)
            supervisor.until_logged("dump", turn)
        wait_until(lambda: all((state_dir(tmp_path) / "dumps" / f"dump-now-{pid}-x.txt").exists() for pid in pids))
        assert [node["pid"] for node in status(tmp_path)["nodes"]] == pids


def test_the_title_tells_the_state_and_embedded_redis_is_in_the_status(tmp_path: Path) -> None:
    with Supervised.running("busy", tmp_path, nodes=2, embedded=True) as supervisor:
        process = psutil.Process(supervisor.process.pid)
        wait_until(lambda: process.cmdline()[0] == "lowkiq: supervisor 2 nodes [running]", "the title")
        node = psutil.Process(supervisor.pid("node 1/2"))
        wait_until(lambda: node.cmdline()[0] == "lowkiq: node 1/2 [ready] 3 busy", "the node's title")
        redis = status(tmp_path)["redis"]
        assert (redis["pid"], redis["state"]) == (supervisor.pid("redis"), "ready")
        assert "embedded Redis ready" in command(tmp_path, "status").stdout
