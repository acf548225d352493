"""
A life under a service manager, with the environment and the command lines that the unit file has: boot, watchdog,
reload, and a stop while a job runs.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from lowkiq.environment import ExitCode
from tests.deploy.systemd.units import SYSTEMD, Unit
from tests.harness import Supervised
from tests.supervisor.manager import Manager
from tests.support import SUPERVISOR, redis_binary, wait_until

#: The unit's own would take half a minute to show anything. The rest of the unit is as it is.
WATCHDOG_SECONDS = 0.4

#: A job names a file, and takes as long as it isn't there.
JOBS = """
import time
from pathlib import Path
from lowkiq import Lowkiq

app = Lowkiq()

@app.worker(queue_name="sync", shards_count=2)
def sync(payloads_by_id):
    app.redis().incr("began")
    for paths in payloads_by_id.values():
        while not Path(paths[-1]).exists():
            time.sleep(0.01)
    app.redis().incr("ended")
"""


class Service(Supervised):
    """The unit, started as systemd would: from this checkout, as this user, and without the unit's walls."""

    def __init__(self, name: str, directory: Path, manager: Manager, extra: dict[str, str]) -> None:
        self.unit = Unit.read(SYSTEMD / name)
        specifiers = {"S": str(directory / "var"), "i": "shop"}
        self.variables = self.unit.environment(**specifiers) | extra
        self.state, runtime = (
            directory / place / self.unit.one(f"{setting}Directory").replace("%i", "shop")
            for place, setting in (("var", "State"), ("run", "Runtime"))
        )
        self.state.mkdir(parents=True, mode=int(self.unit.one("StateDirectoryMode"), 8))
        runtime.mkdir(parents=True)
        command, *arguments = self.unit.command("ExecStart", self.variables, **specifiers)
        assert Path(command).name == "lowkiq-supervisor"
        given = {"RUNTIME_DIRECTORY": str(runtime), "STATE_DIRECTORY": str(self.state)}
        told = manager.environment(WATCHDOG_USEC=str(int(WATCHDOG_SECONDS * 1e6)))
        super().__init__(directory, [*SUPERVISOR, *arguments], self.variables | given | told)

    def reload(self) -> None:
        command = self.unit.command("ExecReload", self.variables)
        subprocess.run(command, env=os.environ | {"MAINPID": str(self.process.pid)}, check=True)

    def kill_mixed(self) -> None:
        """The stop of KillMode=mixed begins with TERM to the main process alone."""
        assert self.unit.one("KillMode") == "mixed"
        assert "KillSignal" not in self.unit.sections["Service"], "TERM is the default"
        self.send(signal.SIGTERM)


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    made = Manager(str(tmp_path / "notify"))
    yield made
    made.socket.close()


@pytest.mark.parametrize("name", ["lowkiq.service", pytest.param("lowkiq@.service", marks=pytest.mark.long)])
def test_boot_watchdog_reload_and_a_stop_that_waits_for_a_job(name: str, manager: Manager, tmp_path: Path) -> None:
    if redis_binary() is None:
        pytest.skip("no redis-server here, which other tests say")
    (tmp_path / "jobs.py").write_text(JOBS)
    extra = {"LOWKIQ_APP": "jobs", "LOWKIQ_NODES": "2", "LOWKIQ_OPTIONS": "--boot-timeout 60  --max-jobs 100000"}
    with Service(name, tmp_path, manager, extra) as service:
        manager.until_told("READY=1")
        manager.until_told("STATUS=running: 2 of 2 nodes ready")
        manager.until_told("WATCHDOG=1", 3)

        first = {service.pid("node 0/2"), service.pid("node 1/2")}
        service.reload()
        manager.until_told("RELOADING=1")
        manager.until_told("READY=1", 2)
        assert not first & {service.pid("node 0/2"), service.pid("node 1/2")}
        assert service.process.poll() is None, "the main process is the same"

        socket = service.state / "redis" / "redis.sock"
        with redis.Redis(unix_socket_path=str(socket)) as client:
            _push(service, tmp_path)
            wait_until(lambda: client.get("began") == b"1", "the start of the job")
            manager.told()  # its socket keeps ten messages, and signs of life have come while nobody read
            service.kill_mixed()
            stopping = manager.until_told("STOPPING=1").splitlines()[1]
            wait_until(lambda: manager.last().startswith("STATUS=draining"), "the drain")
            assert client.get("ended") is None
            fed = manager.told().count("WATCHDOG=1")
            manager.until_told("WATCHDOG=1", fed + 2)
            (tmp_path / "go").touch()
        assert service.exit_code() == ExitCode.DRAINED
        assert service.nothing_is_left()
    asked = int(stopping.removeprefix("EXTEND_TIMEOUT_USEC=")) / 1e6
    assert asked <= Unit.read(SYSTEMD / name).seconds("TimeoutStopSec"), "which systemd would wait for anyway"
    assert not list((tmp_path / "run").rglob("*.*")), "nothing is kept in what systemd empties"
    assert list(service.state.rglob("*.aof")), "the private Redis keeps jobs where they last"


@pytest.mark.parametrize(
    ("extra", "code"),
    [
        ({"LOWKIQ_APP": ""}, ExitCode.BOOT),
        ({"LOWKIQ_APP": "jobs", "LOWKIQ_NODES": "many"}, ExitCode.USAGE),
        ({"LOWKIQ_APP": "jobs", "LOWKIQ_OPTIONS": "--no-such-option"}, ExitCode.USAGE),
        ({"LOWKIQ_APP": "no_such_module", "REDIS_URL": "unix:///nowhere"}, ExitCode.BOOT),
    ],
    ids=["no application", "no number", "no such option", "no such module"],
)
def test_a_wrong_environment_file_ends_with_a_code_that_prevents_restarts(
    extra: dict[str, str], code: ExitCode, manager: Manager, tmp_path: Path
) -> None:
    with Service("lowkiq.service", tmp_path, manager, extra) as service:
        assert service.exit_code() == code
        assert str(int(code)) in service.unit.one("RestartPreventExitStatus").split()
    assert not any(message.startswith("READY") for message in manager.told())


def _push(service: Service, directory: Path) -> None:
    code = f"import jobs; jobs.sync.perform_async([{{'id': 1, 'payload': {str(directory / 'go')!r}}}])"
    environment = {name: value for name, value in os.environ.items() if "REDIS" not in name} | service.variables
    subprocess.run([sys.executable, "-c", code], cwd=directory, env=environment, check=True, timeout=60)
