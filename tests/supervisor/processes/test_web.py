"""The web view as a child of the supervisor, which lives and dies beside the nodes and never with them as its price."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.harness import Supervised, command, status
from tests.support import wait_until

AT_ONCE = {"first_delay": 0.01, "longest_delay": 0.01}
NEVER_SOON = {"first_delay": 300, "longest_delay": 300, "longest_soon": 300}


@pytest.fixture
def port() -> int:
    """One that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


class Views:
    """Supervisors with a web view on one port."""

    def __init__(self, directory: Path, port: int) -> None:
        self.directory, self.port = directory, port
        self.slot = f"web 127.0.0.1:{port}"

    def supervise(
        self, view: str = "serving", behaviour: str = "obedient", nodes: int = 2, **options: Any
    ) -> Supervised:
        return Supervised.doing(behaviour, self.directory, nodes=nodes, web=(view, self.port), **options)

    @contextmanager
    def running(self, view: str = "serving", behaviour: str = "obedient", **options: Any) -> Iterator[Supervised]:
        """A supervisor whose nodes and view are ready."""
        with self.supervise(view, behaviour, **options) as supervisor:
            supervisor.until_ready(options.get("nodes", 2))
            supervisor.until_logged("ready", slot=self.slot)
            yield supervisor

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = status(self.directory)["web"]
        return found

    def overall(self) -> str:
        return str(status(self.directory)["supervisor"]["state"])

    def is_open(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port)).close()
        except ConnectionRefusedError:
            return False
        return True


@pytest.fixture
def views(tmp_path: Path, port: int) -> Views:
    return Views(tmp_path, port)


def title(pid: int) -> str:
    return psutil.Process(pid).cmdline()[0]


def node_starts(supervisor: Supervised) -> int:
    return len([line for line in supervisor.events("started") if line["slot"].startswith("node ")])


def test_it_starts_when_redis_answers_with_its_url_and_goes_after_the_nodes_and_before_redis(views: Views) -> None:
    environment = {"NOTIFY_SOCKET": str(views.directory / "nobody"), "WATCHDOG_USEC": "1000000"}
    with views.running(embedded=True, environment=environment) as supervisor:
        told = json.loads((views.directory / "env-web").read_text())
        assert told["LOWKIQ_REDIS_URL"] == f"unix://{views.directory}/.lowkiq/redis/redis.sock"
        assert told["LOWKIQ_SUPERVISOR_PID"] == str(supervisor.process.pid)
        assert not {"NOTIFY_SOCKET", "WATCHDOG_USEC"} & told.keys()
        supervisor.end()
        lines = [(line["event"], line["slot"]) for line in supervisor.log() if "slot" in line]
        assert lines.index(("ready", "redis")) < lines.index(("started", views.slot))
        ended = [slot for event, slot in lines if event == "ended"]
        assert set(ended[:2]) == {"node 0/2", "node 1/2"}
        assert ended[2:] == [views.slot, "redis"]


def test_it_is_there_while_nodes_drain_and_restarted_even_then(views: Views) -> None:
    with views.running(behaviour="patient", nodes=1, policy=AT_ONCE) as supervisor:
        supervisor.send(signal.SIGTERM)
        supervisor.until_logged("draining")
        os.kill(supervisor.pid(views.slot), signal.SIGKILL)
        supervisor.until_logged("ready", 2, views.slot)
        assert views.is_open()
        (views.directory / "job-has-ended").touch()
        assert supervisor.exit_code() == 0
        assert not views.is_open()


def test_killed_it_is_restarted_and_no_node_notices(views: Views) -> None:
    with views.running(policy=AT_ONCE, restart="never") as supervisor:
        os.kill(supervisor.pid(views.slot), signal.SIGKILL)
        supervisor.until_logged("ready", 2, views.slot)
        assert views.is_open()
        assert (views.status()["restarts"], views.status()["last_exit"]) == (1, "killed by SIGKILL")
        assert node_starts(supervisor) == 2
        supervisor.end()


def test_however_often_it_fails_it_is_tried_again_and_nodes_work_on(views: Views) -> None:
    with views.supervise("failing", policy=AT_ONCE) as supervisor:
        supervisor.until_ready(2)
        supervisor.until_logged("died_will_restart", 12, views.slot)
        assert not supervisor.events("crash_loop")
        assert node_starts(supervisor) == 2
        assert views.overall() == "degraded"
        (views.directory / "mended").touch()
        supervisor.until_logged("ready", slot=views.slot)
        wait_until(lambda: views.overall() == "running", "health")
        supervisor.end()


def test_without_a_first_start_of_its_own_nodes_are_as_ready_as_ever(views: Views) -> None:
    with views.supervise("silent_at_boot", boot_timeout=300) as supervisor:
        supervisor.until_ready(2)
        assert (views.overall(), views.status()["state"]) == ("running", "starting")
        supervisor.end()
        assert supervisor.events("ended", views.slot)[0]["reason"] == "killed by SIGTERM"


def test_a_hung_one_is_killed_and_replaced(views: Views) -> None:
    constants = {"policy.limits.DUMP_TIME": 0.3}
    with views.supervise(hang_timeout=2, constants=constants, policy=AT_ONCE) as supervisor:
        supervisor.until_logged("ready", slot=views.slot)
        os.kill(supervisor.pid(views.slot), signal.SIGSTOP)
        died = supervisor.until_logged("died_will_restart")[0]
        assert (died["slot"], died["reason"][:18]) == (views.slot, "hung, no beat for ")
        supervisor.until_logged("ready", 2, views.slot)
        assert node_starts(supervisor) == 2
        supervisor.end()


def test_one_that_never_gets_through_its_boot_is_dumped_and_tried_again(views: Views) -> None:
    with views.supervise("silent_at_boot", boot_timeout=1, policy=AT_ONCE) as supervisor:
        supervisor.until_logged("started", 3, views.slot)
        assert "in silent_at_boot" in supervisor.log_path.read_text()


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 0), (signal.SIGQUIT, 130)])
def test_one_that_ignores_term_is_killed_soon_and_that_is_not_a_lost_job(
    views: Views, signum: signal.Signals, code: int
) -> None:
    # QUIT's grace is for nodes and Redis, too: made shorter, it would kill those of a machine under load.
    with views.running("deaf", constants={"processes.web.GRACE": 0.2}, embedded=True) as supervisor:
        supervisor.end(signum, code=code)
        assert [line["slot"] for line in supervisor.events("missed_deadline")] == [views.slot]
        assert [line["slot"] for line in supervisor.events("ended")][-1] == "redis"


def test_sigkill_of_the_supervisor_leaves_no_view_alive(views: Views) -> None:
    with views.supervise("deaf") as supervisor:
        supervisor.until_logged("ready", slot=views.slot)
        supervisor.process.kill()
        assert supervisor.nothing_is_left()


def test_a_burst_that_is_over_ends_it_too(views: Views) -> None:
    with views.supervise(behaviour="burst", burst=True, policy=AT_ONCE) as supervisor:
        supervisor.ends(0)
        assert {path.name for path in views.directory.glob("finished-*")} == {"finished-0", "finished-1"}


def test_when_no_node_boots_the_exit_is_3_with_it_as_without(views: Views) -> None:
    with views.supervise(behaviour="refusing") as supervisor:
        supervisor.ends(3)


def test_hup_and_restart_renew_it_after_the_nodes(views: Views) -> None:
    with views.running(policy=NEVER_SOON) as supervisor:
        supervisor.send(signal.SIGHUP)
        supervisor.until_logged("rolling_restart_over")
        assert [line["slot"] for line in supervisor.events("replacing")] == ["node 0/2", "node 1/2", views.slot]
        assert views.is_open()
        answer = command(views.directory, "restart")
        assert answer.stdout == "restarting one after another: slots 0, 1, then the web view\n"
        supervisor.until_logged("rolling_restart_over", 2)
        assert (views.status()["replacements"], views.status()["failures"], views.overall()) == (2, 0, "running")


def test_hup_tries_one_that_waits_for_its_next_start_at_once(views: Views) -> None:
    with views.supervise("failing", policy=NEVER_SOON) as supervisor:
        supervisor.until_ready(2)
        supervisor.until_logged("died_will_restart", slot=views.slot)
        assert views.status()["next_retry"] > 100
        (views.directory / "mended").touch()
        supervisor.send(signal.SIGHUP)
        supervisor.until_logged("ready", slot=views.slot)


def test_restart_of_one_node_and_quiet_leave_it_alone(views: Views) -> None:
    with views.running() as supervisor:
        assert command(views.directory, "restart", "1").stdout == "restarting one after another: slots 1\n"
        supervisor.until_logged("rolling_restart_over")
        assert command(views.directory, "quiet").returncode == 0
        wait_until((views.directory / "quiet-1").exists)
        dump = command(views.directory, "dump")
        assert dump.returncode == 0
        assert str(supervisor.pid(views.slot)) not in dump.stdout
        assert (views.status()["state"], views.status()["restarts"]) == ("ready", 0)
        assert views.overall() == "quiet"


def test_recycling_limits_are_for_nodes(views: Views) -> None:
    with views.supervise(max_age=0.5, policy=NEVER_SOON) as supervisor:
        supervisor.until_logged("replacing", 4)
        assert views.slot not in {line["slot"] for line in supervisor.events("replacing")}


def test_status_titles_and_usr2_show_it(views: Views) -> None:
    with views.running(policy=NEVER_SOON) as supervisor:
        pid = supervisor.pid(views.slot)
        wait_until(lambda: title(pid) == f"lowkiq: {views.slot} [ready]", "its title")
        own = f"lowkiq: supervisor 2 nodes, {views.slot} "
        wait_until(lambda: title(supervisor.process.pid) == f"{own}[running]", "the supervisor's title")
        shown = command(views.directory, "status")
        assert shown.returncode == 0
        assert f"{views.slot} ready" in shown.stdout
        assert ["web", "-", str(pid), "ready"] in [line.split()[:4] for line in shown.stdout.splitlines()]

        os.kill(pid, signal.SIGKILL)
        supervisor.until_logged("died_will_restart", slot=views.slot)
        wait_until(lambda: title(supervisor.process.pid) == f"{own}[degraded]", "the supervisor's title")
        machine = command(views.directory, "status", "--json")
        assert machine.returncode == 1
        web = json.loads(machine.stdout)["web"]
        assert (web["address"], web["pid"], web["state"]) == (f"127.0.0.1:{views.port}", None, "backoff")
        assert (web["failures"], web["last_exit"]) == (1, "killed by SIGKILL")
        supervisor.send(signal.SIGUSR2)
        assert supervisor.until_logged("status")[0]["web"]["state"] == "backoff"
