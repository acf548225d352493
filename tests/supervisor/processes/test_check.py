"""Checks before anything is started: what a person must change is one line, and waiting for it has an end."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest

from tests.harness import Supervised
from tests.support import wait_until

APP = """
from lowkiq import Lowkiq
app = Lowkiq()

@app.worker
def note(payloads_by_id): ...
"""
HANGS = {
    "in Python": "while True: pass",
    "in a system call": "import time; time.sleep(300)",
    "in C that holds the interpreter": "import ctypes; ctypes.PyDLL(None).sleep(300)",
}
#: As long as a busy machine needs: an import that takes longer than this is left to the nodes.
PATIENT = {"processes.check.CHECK_TIME": 200.0}
#: Nobody waits for the stack of a process that is stuck: it has seconds to write it.
DUMPED = {"processes.check.DUMP_TIME": 5.0}
TROUBLES = {
    "no such module": (None, "no module 'shop'"),
    "no such attribute": ("x = 1", "module shop has no Lowkiq application"),
    "syntax": ("def f(:\n", "SyntaxError: invalid syntax (shop.py, line 1)"),
    "a setting": ("from lowkiq import Lowkiq\nLowkiq(threads_per_node=0)", "threads_per_node"),
    "a missing package": ("import not_installed_here", "No module named 'not_installed_here'"),
    "exit 0": ("import sys; sys.exit(0)", "sys.exit(0)"),
}


@pytest.mark.parametrize("preload", [(), ("--preload",)], ids=["plain", "preload"])
@pytest.mark.parametrize(("code", "told"), TROUBLES.values(), ids=TROUBLES.keys())
def test_what_a_person_must_change_is_one_line_and_starts_nothing(
    tmp_path: Path, code: str | None, told: str, preload: tuple[str, ...]
) -> None:
    if code is not None:
        (tmp_path / "shop.py").write_text(code)
    with Supervised.with_constants(PATIENT, tmp_path, "--nodes", "4", "-r", "shop", *preload) as supervisor:
        supervisor.ends(3)
        (line,) = supervisor.log()
        assert line["event"] == "cannot_start"
        assert told in line["error"]
        assert not (tmp_path / ".lowkiq").exists()


def test_a_port_that_is_taken_is_named_with_its_holder(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(APP)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with Supervised.main(tmp_path, "-r", "shop", "--web", f"127.0.0.1:{port}") as supervisor:
            supervisor.ends(3)
            (line,) = supervisor.log()
            assert f"can't listen at 127.0.0.1:{port}: Address already in use" in line["error"]
            assert f"process {os.getpid()} (" in line["error"]


def test_what_may_heal_is_left_to_the_nodes(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text("raise ConnectionRefusedError('the database is away')")
    with Supervised.main(tmp_path, "-r", "shop") as supervisor:
        supervisor.until_logged("started", slot="node 0/1")
        supervisor.send(signal.SIGTERM)
        assert supervisor.nothing_is_left()


@pytest.mark.long
def test_a_long_import_is_left_to_the_nodes(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(f"import time\ntime.sleep(6)\n{APP}")
    with Supervised.main(tmp_path, "-r", "shop") as supervisor:
        supervisor.until_logged("ready", slot="node 0/1")
        supervisor.end()


@pytest.mark.parametrize(
    "preload", [pytest.param((), marks=pytest.mark.long), ("--preload",)], ids=["plain", "preload"]
)
@pytest.mark.parametrize("hang", HANGS.values(), ids=HANGS.keys())
def test_a_hanging_import_hears_signals_at_once(tmp_path: Path, hang: str, preload: tuple[str, ...]) -> None:
    (tmp_path / "shop.py").write_text(f"open('importing', 'w').close()\n{hang}")
    for signum, code in ((signal.SIGTERM, 0), (signal.SIGINT, 0), (signal.SIGQUIT, 130)):
        with Supervised.with_constants(PATIENT, tmp_path, "-r", "shop", *preload) as supervisor:
            wait_until((tmp_path / "importing").exists)
            (tmp_path / "importing").unlink()
            supervisor.end(signum, code=code)
            assert not supervisor.events("started")


@pytest.mark.long
@pytest.mark.parametrize("hang", HANGS.values(), ids=HANGS.keys())
def test_a_hanging_preload_ends_by_the_boot_timeout(tmp_path: Path, hang: str) -> None:
    (tmp_path / "shop.py").write_text(hang)
    with Supervised.with_constants(DUMPED, tmp_path, "-r", "shop", "--preload", "--boot-timeout", "12") as supervisor:
        supervisor.ends(3)
        assert "--boot-timeout 12" in supervisor.events("cannot_start")[0]["error"]
        assert "shop.py" in supervisor.log_path.read_text(), "where it hangs"


@pytest.mark.long
def test_one_that_hangs_only_the_second_time_ends_too(tmp_path: Path) -> None:
    second = "import os, time\nif os.path.exists('once'): time.sleep(300)\nopen('once', 'w').close()\n"
    (tmp_path / "shop.py").write_text(second + APP)
    with Supervised.main(tmp_path, "-r", "shop", "--preload", "--boot-timeout", "10") as supervisor:
        supervisor.ends(3)
        assert "within 10 s" in supervisor.events("cannot_start")[0]["error"]


def test_threads_at_import_are_refused_and_keep_nothing_alive(tmp_path: Path) -> None:
    thread = "import threading, time\nthreading.Thread(target=time.sleep, args=(300,), name='poller').start()\n"
    (tmp_path / "shop.py").write_text(thread + APP)
    with Supervised.main(tmp_path, "-r", "shop", "--preload") as supervisor:
        supervisor.ends(3)
        assert "starts threads (poller)" in supervisor.events("cannot_start")[0]["error"]


def test_a_preload_that_may_heal_can_be_started_again(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text("raise ConnectionRefusedError('the database is away')")
    with Supervised.main(tmp_path, "-r", "shop", "--preload") as supervisor:
        supervisor.ends(1)
        assert "the database is away" in supervisor.events("cannot_start")[0]["error"]
