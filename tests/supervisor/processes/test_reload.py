"""--reload: the nodes follow the code, and a broken file leaves them as they are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.harness import ENVIRONMENT, Supervised, command
from tests.support import SUPERVISOR, wait_until

APP = """
from pathlib import Path
from lowkiq import Lowkiq

def tell():
    Path("version").write_text("{version}")

app = Lowkiq(on_server_init=tell)

@app.worker
def note(payloads_by_id): ...
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    write(tmp_path, "1")
    return tmp_path


def write(project: Path, version: str) -> None:
    (project / "shop.py").write_text(APP.replace("{version}", version))


def has(project: Path, version: str) -> bool:
    return (project / "version").exists() and (project / "version").read_text() == version


def test_nodes_follow_the_code(project: Path) -> None:
    with Supervised.main(project, "--nodes", "2", "-r", "shop", "--reload").ready(2) as supervisor:
        for version in "234":  # of the same size, perhaps within a second
            write(project, version)
            wait_until(lambda version=version: has(project, version), version)
        assert supervisor.events("files_changed")[0]["files"] == ["shop.py"]
        supervisor.until_logged("rolling_restart_over")
        supervisor.end()


def test_a_syntax_error_leaves_the_old_nodes_and_the_next_change_mends_it(project: Path) -> None:
    with Supervised.main(project, "-r", "shop", "--reload").ready(1) as supervisor:
        first = psutil.Process(supervisor.pid("node 0/1"))
        (project / "shop.py").write_text("def f(:")
        supervisor.until_logged("roll_stopped")
        assert first.is_running()
        write(project, "2")
        wait_until(lambda: has(project, "2"))
        supervisor.until_logged("rolling_restart_over")
        wait_until(lambda: not first.is_running())
        supervisor.end()


def watchers(supervisor: Supervised) -> list[psutil.Process]:
    children = psutil.Process(supervisor.process.pid).children()
    return [child for child in children if "watcher" in "".join(child.cmdline())]


def test_other_files_change_nothing_and_a_dead_watcher_is_said(project: Path) -> None:
    with Supervised.main(project, "-r", "shop", "--reload").ready(1) as supervisor:
        (project / "notes.txt").write_text("x")
        (watcher,) = wait_until(lambda: watchers(supervisor), "the watcher's title")
        watcher.kill()
        supervisor.until_logged("watcher_ended")
        assert not supervisor.events("files_changed")
        supervisor.end()


def test_preload_and_a_missing_package_are_refused(project: Path) -> None:
    answer = command(project, "-r", "shop", "--reload", "--preload")
    assert (answer.returncode, "use one of them" in answer.stderr) == (2, True)
    (project / "without.py").write_text("import sys; sys.modules['watchfiles'] = None")
    code = "import without, sys; sys.argv = ['lowkiq-supervisor', '-r', 'shop', '--reload']; "
    environment = ENVIRONMENT | {"PYTHONPATH": os.pathsep.join([ENVIRONMENT["PYTHONPATH"], str(project)])}
    words = [sys.executable, "-c", code + SUPERVISOR[1]]
    found = subprocess.run(words, cwd=project, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert found.returncode == 2
    assert "pip install 'lowkiq[reload]'" in found.stderr
