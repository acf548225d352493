"""`lowkiq-supervisor` as people run it: its command line, an application, real nodes and the embedded Redis."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness import Supervised, command
from tests.support import ROOT, SOURCES, wait_until

APP = """
import os, time
from pathlib import Path
from lowkiq import Lowkiq

def feed():
    if os.environ.get("FEED"):
        note.perform_async([{"id": str(number), "payload": number} for number in range(200)])

app = Lowkiq(on_server_init=feed)

@app.worker(batch_size=10)
def note(payloads_by_id):
    with Path(f"done-{os.getpid()}").open("a") as done:
        for name in payloads_by_id:
            done.write(f"{name}\\n")
    while "stuck" in payloads_by_id and Path("stay").exists():
        time.sleep(0.01)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(APP)
    return tmp_path


def done(project: Path) -> list[str]:
    return [line for path in project.glob("done-*") for line in path.read_text().splitlines()]


def push(project: Path, name: str) -> None:
    """From another process of the same directory, which is told nothing about Redis."""
    plain = {key: value for key, value in os.environ.items() if "REDIS" not in key}
    code = f"import shop; shop.note.perform_async([{{'id': {name!r}}}])"
    environment = plain | {"PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", code], cwd=project, env=environment, check=True, timeout=60)


def test_a_burst_of_two_nodes_runs_every_job_and_exits_0(project: Path) -> None:
    with Supervised.main(project, "--nodes", "2", "-r", "shop", "--burst", FEED="yes") as supervisor:
        supervisor.ends(0)
        assert set(done(project)) == {str(number) for number in range(200)}


def test_a_producer_in_the_same_directory_needs_no_url_and_term_drains(project: Path) -> None:
    with Supervised.main(project, "--nodes", "2", "-r", "shop:app").ready(2) as supervisor:
        push(project, "one")
        wait_until(lambda: done(project) == ["one"], "the job")
        supervisor.end()


def test_the_job_of_a_killed_node_runs_again_without_waiting_for_the_lease(project: Path) -> None:
    (project / "stay").touch()
    with Supervised.main(project, "--nodes", "1", "-r", "shop", LOWKIQ_LEASE_TTL="300").ready(1) as supervisor:
        push(project, "stuck")
        wait_until(lambda: done(project) == ["stuck"], "the job")
        os.kill(supervisor.pid("node 0/1"), signal.SIGKILL)
        wait_until(lambda: done(project) == ["stuck", "stuck"], "the job's second run")
        (project / "stay").unlink()
        supervisor.end()


def test_nodes_go_on_when_the_embedded_redis_was_restarted(project: Path) -> None:
    with Supervised.main(project, "-r", "shop").ready(1) as supervisor:
        push(project, "before")
        wait_until(lambda: done(project) == ["before"], "the job before")
        os.kill(supervisor.pid("redis"), signal.SIGKILL)
        supervisor.until_logged("ready", 2, "redis")
        push(project, "after")
        wait_until(lambda: "after" in done(project), "the job after")
        assert len(supervisor.events("started", "node 0/1")) == 1
        supervisor.end()


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 5), (signal.SIGQUIT, 130)])
def test_a_job_that_outlasts_the_drain_ends_with_5_and_when_abandoned_with_130(
    project: Path, signum: signal.Signals, code: int
) -> None:
    (project / "stay").touch()
    with Supervised.main(project, "-r", "shop", "--drain-timeout", "0.2").ready(1) as supervisor:
        push(project, "stuck")
        wait_until(lambda: done(project), "the job")
        supervisor.end(signum, code=code)


FLAKY = """
def connect():
    if not Path("there").exists():
        raise ConnectionRefusedError("the database is away")
app = Lowkiq(on_server_init=connect)
"""


def test_a_hook_that_fails_at_the_first_boot_is_tried_again_and_heals(project: Path) -> None:
    (project / "shop.py").write_text(APP.replace("app = Lowkiq(on_server_init=feed)", FLAKY))
    with Supervised.main(project, "-r", "shop") as supervisor:
        died = supervisor.until_logged("died_will_restart")[0]
        assert (died["reason"], died["kind"]) == ("exit code 1", "boot")
        (project / "there").touch()
        supervisor.until_ready(1)
        supervisor.end()


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("import nothing_of_this_name", "ModuleNotFoundError"),
        ("def broken(:", "SyntaxError"),
        ("import sys; sys.exit(0)", "sys.exit(0)"),
    ],
)
def test_what_only_a_person_can_mend_ends_the_first_boot_with_3(project: Path, code: str, error: str) -> None:
    (project / "shop.py").write_text(code)
    with Supervised.main(project, "--nodes", "2", "-r", "shop") as supervisor:
        supervisor.ends(3)
        assert error in supervisor.log_path.read_text()


@pytest.mark.parametrize(
    ("module", "message"), [("nothing_here", "no module 'nothing_here'"), ("shop:missing", "shop.missing is not a")]
)
def test_an_app_that_is_not_there_is_named_and_the_exit_is_3(project: Path, module: str, message: str) -> None:
    constants = {"processes.check.CHECK_TIME": 200.0}
    with Supervised.with_constants(constants, project, "--nodes", "2", "-r", module) as supervisor:
        assert supervisor.exit_code() == 3
        assert message in supervisor.events("cannot_start")[0]["error"]


@pytest.mark.parametrize(
    ("arguments", "environment", "message"),
    [
        (["-r", "shop"], {"NODE_NUMBER": "jobs-x"}, "NODE_NUMBER is 'jobs-x'"),
        (["--nodes", "2"], {}, "--require is missing: name the module with the app"),
        (["-r", "shop", "--web", "localhost"], {}, "--web 'localhost': give HOST:PORT"),
        (["-r", "shop", "--web", ":8080"], {}, "--web :8080 is open to other machines: set LOWKIQ_WEB_TOKEN, or "),
        (["-r", "shop", "--web", ":80"], {"LOWKIQ_WEB_TOKEN": "short"}, "LOWKIQ_WEB_TOKEN has 5 characters"),
        (["-r", "shop", "--web-read-only"], {}, "--web-read-only is for the web view: add where it listens"),
    ],
)
def test_wrong_usage_exits_2_with_one_line_and_starts_nothing(
    project: Path, arguments: list[str], environment: dict[str, str], message: str
) -> None:
    with Supervised.main(project, *arguments, **environment) as supervisor:
        supervisor.ends(2)
        (line,) = supervisor.log_path.read_text().splitlines()
        assert line.startswith(f"lowkiq-supervisor: {message}")
        assert not (project / ".lowkiq").exists()


def test_the_supervisor_imports_leaves_of_the_library_and_no_redis_client() -> None:
    code = "import sys, lowkiq_supervisor.cli; print(*sys.modules)"
    environment = {"PYTHONPATH": SOURCES}
    answer = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    modules = answer.stdout.split()
    assert "redis" not in modules
    leaves = ("lowkiq", "clock", "environment", "errors", "log", "process", "redaction", "shared_page", "tree_page",
              "version", "variables")  # fmt: skip
    found = {name.removeprefix("lowkiq.").split(".")[0] for name in modules if name.split(".")[0] == "lowkiq"}
    assert found <= set(leaves)


def test_help_shows_examples(project: Path) -> None:
    answer = command(project, "--help")
    assert answer.returncode == 0
    assert "lowkiq-supervisor --nodes 4 -r shop.jobs" in answer.stdout
