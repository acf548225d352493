"""`lowkiq-supervisor restart`: waiting for its outcome, and going on after it has stopped."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness import ENVIRONMENT, Supervised, command, status
from tests.support import SUPERVISOR


def test_restart_of_one_slot_leaves_the_others_alone(tmp_path: Path) -> None:
    with Supervised.doing("obedient", tmp_path, nodes=3, policy={"first_delay": 300}) as supervisor:
        before = supervisor.until_ready(3)
        answer = command(tmp_path, "restart", "1", "--wait")
        assert (answer.returncode, answer.stdout.splitlines()[-1]) == (0, "over: node 1/3 replaced")
        after = [node["pid"] for node in status(tmp_path)["nodes"]]
        assert [after[0], after[2]] == [before[0], before[2]]
        assert after[1] != before[1]
        assert status(tmp_path)["nodes"][1]["last_exit"] == "exit code 0"


def test_restart_that_waits_exits_with_0_when_every_node_was_replaced(tmp_path: Path) -> None:
    with Supervised.running("obedient", tmp_path, nodes=2) as supervisor:
        answer = command(tmp_path, "restart", "--wait")
        assert answer.returncode == 0, answer.stderr
        assert answer.stdout.splitlines() == [
            "restarting one after another: slots 0, 1",
            "node 0/2: replaced",
            "node 1/2: replaced",
            "over: node 0/2, node 1/2 replaced",
        ]
        assert len(supervisor.events("rolling_restart_over")) == 1


def test_one_that_takes_too_long_is_not_waited_for_and_goes_on(tmp_path: Path) -> None:
    with Supervised.running("obedient", tmp_path, nodes=2) as supervisor:
        answer = command(tmp_path, "restart", "--wait", "--timeout", "0")
        assert answer.returncode == 1
        assert "the restart goes on after 0 s: `status` shows how far it has come" in answer.stderr
        supervisor.until_logged("rolling_restart_over")


def test_one_that_stops_exits_with_1_and_the_reason_and_resume_goes_on_when_it_is_mended(tmp_path: Path) -> None:
    with Supervised.doing("doomed_successor", tmp_path, nodes=2, policy={"first_delay": 0.01}) as supervisor:
        before = supervisor.until_ready(2)
        answer = command(tmp_path, "restart", "--wait")
        assert answer.returncode == 1
        assert "the restart has stopped: the successor of node 0/2 failed: exit code 3, refused" in answer.stderr
        assert "left as they were: node 0/2, node 1/2; `restart --resume` goes on" in answer.stderr
        assert "roll stopped: the successor of node 0/2 failed: exit code 3" in command(tmp_path, "status").stdout
        assert [node["pid"] for node in status(tmp_path)["nodes"]] == before

        (tmp_path / "mended").touch()
        resumed = command(tmp_path, "restart", "--resume", "--wait")
        assert (resumed.returncode, resumed.stdout.splitlines()[-1]) == (0, "over: node 0/2, node 1/2 replaced")
        assert not set(before) & {node["pid"] for node in status(tmp_path)["nodes"]}
        assert "roll stopped" not in command(tmp_path, "status").stdout
        supervisor.end()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--resume"], "no rolling restart has stopped: there is nothing to resume"),
        (["1", "--resume"], "--resume goes on with the slots that are left: not with slot 1 alone"),
    ],
)
def test_what_can_not_be_resumed_is_refused(tmp_path: Path, arguments: list[str], message: str) -> None:
    with Supervised.running("obedient", tmp_path, nodes=2):
        answer = command(tmp_path, "restart", *arguments)
        assert (answer.returncode, answer.stdout) == (1, "")
        assert message in answer.stderr


def test_a_wait_ends_with_the_supervisor_and_not_with_0(tmp_path: Path) -> None:
    with Supervised.running("obedient", tmp_path, nodes=2, soak=300) as supervisor:
        words = [sys.executable, *SUPERVISOR, "restart", "--wait"]
        waiter = subprocess.Popen(words, cwd=tmp_path, env=ENVIRONMENT, stdout=subprocess.PIPE)
        assert waiter.stdout is not None
        assert waiter.stdout.readline() == b"restarting one after another: slots 0, 1\n"
        supervisor.end()
        waiter.communicate()
        assert waiter.returncode in {1, 2}
