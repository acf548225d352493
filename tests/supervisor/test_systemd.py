"""Messages to a service manager, at a socket such as systemd's."""

from __future__ import annotations

import json
import os
import secrets
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lowkiq_supervisor.systemd import ServiceManager
from tests.harness import Supervised
from tests.supervisor.manager import Manager
from tests.support import wait_until


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    address = str(tmp_path / "notify") if request.param == "path" else f"@lowkiq-test-{secrets.token_hex(8)}"
    made = Manager(address)
    yield made
    made.socket.close()


def supervisor_for(manager: Manager, tmp_path: Path, behaviour: str = "obedient", **options: Any) -> Supervised:
    environment = manager.environment(WATCHDOG_USEC="400000")
    return Supervised.doing(behaviour, tmp_path, environment=environment, nodes=2, **options)


def test_ready_reload_and_stop_are_told_in_order(manager: Manager, tmp_path: Path) -> None:
    with supervisor_for(manager, tmp_path, drain_timeout=33) as supervisor:
        manager.until_told("READY=1")
        assert len(supervisor.events("ready")) == 2, "not before every node is ready"
        manager.until_told("STATUS=running: 2 of 2 nodes ready")
        supervisor.send(signal.SIGHUP)
        reloading = dict(line.split("=") for line in manager.until_told("RELOADING=1").splitlines())
        assert int(reloading["MONOTONIC_USEC"]) > 0
        manager.until_told("READY=1", 2)
        assert len(supervisor.events("rolling_restart_over")) == 1
        supervisor.end()
        stopping = dict(line.split("=") for line in manager.until_told("STOPPING=1").splitlines())
        assert 33_000_000 < int(stopping["EXTEND_TIMEOUT_USEC"]) < 60_000_000
        assert manager.last().startswith("STATUS=draining")


def test_a_roll_takes_as_long_as_it_takes_while_the_loop_turns(manager: Manager) -> None:
    service = ServiceManager(manager.address, watchdog=0.02)
    service.ready()
    for begins, told in ((True, "WATCHDOG=1\nEXTEND_TIMEOUT_USEC=20000"), (False, "WATCHDOG=1")):
        service.reloading(begins)
        before = len(manager.told())
        wait_until(lambda: service.watchdog(True) or len(manager.told()) > before + 1)  # noqa: B023 - asked at once
        assert manager.told()[-1] == told
    service.close()


def test_a_start_isn_t_cut_short_for_nodes_that_work_while_another_can_t_start(
    manager: Manager, tmp_path: Path
) -> None:
    with supervisor_for(manager, tmp_path, "one_failing_at_boot") as supervisor:
        manager.until_told("WATCHDOG=1\nEXTEND_TIMEOUT_USEC=400000", 2)
        assert "READY=1" not in manager.told()
        (tmp_path / "healed").touch()
        supervisor.until_ready(2)
        manager.until_told("READY=1")
        supervisor.end()


def test_the_watchdog_is_fed_until_a_node_is_silent_and_again_when_it_was_replaced(tmp_path: Path) -> None:
    manager = Manager(str(tmp_path / "notify"))
    constants = {"policy.limits.DUMP_TIME": 1.5}
    policy = {"first_delay": 0.01}
    with supervisor_for(manager, tmp_path, hang_timeout=2, constants=constants, policy=policy).ready(2) as supervisor:
        manager.until_told("WATCHDOG=1", 3)
        os.kill(supervisor.pid("node 1/2"), signal.SIGSTOP)
        supervisor.until_logged("hung")
        silent_from = len(manager.told())
        supervisor.until_logged("missed_deadline")
        assert "WATCHDOG=1" not in manager.told()[silent_from:]
        supervisor.until_logged("ready", 2, "node 1/2")
        manager.until_told("WATCHDOG=1", manager.told().count("WATCHDOG=1") + 1)
    manager.socket.close()


def test_ready_does_not_wait_for_the_web_view_and_stopping_counts_its_time(tmp_path: Path) -> None:
    manager = Manager(str(tmp_path / "notify"))
    with supervisor_for(manager, tmp_path, drain_timeout=30, web=("silent_at_boot", 8080)) as supervisor:
        manager.until_told("READY=1")
        manager.until_told("STATUS=running: 2 of 2 nodes ready, web 127.0.0.1:8080 starting")
        supervisor.end()
        told = manager.until_told("STOPPING=1").splitlines()[1]
        assert told == "EXTEND_TIMEOUT_USEC=42000000", "30 s and 2 s for nodes, 5 s for the view, and 5 s to spare"
    manager.socket.close()


def test_nodes_do_not_inherit_the_manager_s_variables(tmp_path: Path) -> None:
    manager = Manager(str(tmp_path / "notify"))
    with supervisor_for(manager, tmp_path, state_dir=str(tmp_path / "state")).ready(2) as supervisor:
        environment = json.loads((tmp_path / "env-1").read_text())
        assert not {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} & environment.keys()
        facts = {name: environment[f"LOWKIQ_{name}"] for name in ("SUPERVISOR_PID", "SLOT", "RESTARTS", "LAST_EXIT")}
        pid = str(supervisor.process.pid)
        assert facts == {"SUPERVISOR_PID": pid, "SLOT": "1", "RESTARTS": "0", "LAST_EXIT": ""}
        assert environment["LOWKIQ_STATE_DIR"] == str(tmp_path / "state")
        supervisor.until_ready(2)
    manager.socket.close()


def test_a_restarted_node_is_told_how_often_and_why(tmp_path: Path) -> None:
    with Supervised.running("obedient", tmp_path, nodes=1, policy={"first_delay": 0.01}) as supervisor:
        os.kill(supervisor.pid("node 0/1"), signal.SIGKILL)
        supervisor.until_logged("ready", 2)
        environment = json.loads((tmp_path / "env-0").read_text())
        told = environment["LOWKIQ_RESTARTS"], environment["LOWKIQ_LAST_EXIT"]
        assert told == ("1", "killed by SIGKILL, ended from outside")
