"""`lowkiq-supervisor ping`: what probes ask, several times a minute, on every machine."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness import ENVIRONMENT, Supervised, command, state_dir
from tests.support import SUPERVISOR, wait_until
from tests.warm import COLD


def test_it_says_the_state_of_a_supervisor_and_exits_0(tmp_path: Path) -> None:
    with Supervised.running("obedient", tmp_path) as supervisor:
        for arguments in (["ping"], ["ping", "--ready"], ["--state-dir", str(state_dir(tmp_path)), "ping", "--ready"]):
            answer = command(tmp_path, *arguments)
            assert (answer.returncode, answer.stdout) == (0, '{"ok": true, "state": "running", "healthy": true}\n')
        supervisor.end()


def test_a_state_directory_elsewhere_is_found_by_option_and_by_variable(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    place = str(state_dir(tmp_path))
    with Supervised.running("obedient", tmp_path):
        for arguments, environment in ([f"--state-dir={place}"], {}), ([], {"LOWKIQ_STATE_DIR": place}):
            words = [sys.executable, *SUPERVISOR, "ping", *arguments]
            assert subprocess.run(words, cwd=elsewhere, env=ENVIRONMENT | environment, check=False).returncode == 0
        assert command(elsewhere, "ping").returncode == 2


def test_degraded_is_alive_but_not_ready(tmp_path: Path) -> None:
    with Supervised.running("obedient", tmp_path, policy={"first_delay": 300, "longest_soon": 300}) as supervisor:
        os.kill(supervisor.pid("node 0/1"), signal.SIGKILL)
        supervisor.until_logged("died_will_restart")
        assert command(tmp_path, "ping").returncode == 0
        assert command(tmp_path, "ping", "--ready").returncode == 1


def test_where_nobody_is_it_exits_2_and_says_where_it_looked(tmp_path: Path) -> None:
    for arguments in (["ping"], ["ping", "--state-dir", "d" * 200]):
        answer = command(tmp_path, *arguments)
        assert answer.returncode == 2
        assert "no supervisor answers at " in answer.stderr
        assert "Traceback" not in answer.stderr


def test_a_supervisor_that_hangs_doesn_t_answer(tmp_path: Path) -> None:
    with Supervised.running("obedient", tmp_path) as supervisor:
        supervisor.send(signal.SIGSTOP)
        assert command(tmp_path, "ping").returncode == 2
        supervisor.send(signal.SIGCONT)


def test_what_is_asked_wrongly_is_usage(tmp_path: Path) -> None:
    answer = command(tmp_path, "ping", "--redy")
    assert answer.returncode == 2
    assert "--redy" in answer.stderr
    assert "--ready" in command(tmp_path, "ping", "--help").stdout


def test_it_costs_a_fraction_of_a_status(tmp_path: Path) -> None:
    """A ratio, as the machine is shared: about 20 ms of CPU to 300."""

    def cpu(*arguments: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert command(tmp_path, *arguments, **COLD).returncode == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    with Supervised.running("obedient", tmp_path):
        assert min(cpu("ping") for _ in range(5)) < 0.3 * min(cpu("status", "--json") for _ in range(3))


@pytest.mark.parametrize("module", ["typer", "structlog", "psutil", "rich", "typing", "lowkiq.environment"])
def test_it_imports_nothing_that_takes_time(tmp_path: Path, module: str) -> None:
    code = (
        "import atexit, sys; sys.argv = ['lowkiq-supervisor', 'ping']; "
        f"atexit.register(lambda: print({module!r} in sys.modules)); "
        "from lowkiq_supervisor.entry import main; main()"
    )
    words = [sys.executable, "-S", "-c", code]
    answer = subprocess.run(words, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert answer.stdout == "False\n"


def test_a_crowd_of_other_clients_doesn_t_make_it_dead(tmp_path: Path) -> None:
    with Supervised.running("obedient", tmp_path):
        clients = [socket.socket(socket.AF_UNIX) for _ in range(40)]
        try:
            for client in clients[:16]:
                client.connect(str(state_dir(tmp_path) / "control.sock"))
            wait_until(lambda: "too many clients" in command(tmp_path, "ping").stdout, "the crowd")
            assert command(tmp_path, "ping").returncode == 0
        finally:
            for client in clients:
                client.close()
