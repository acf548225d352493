"""The names of nodes that the next supervisor reads."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import structlog

from lowkiq_supervisor import names
from lowkiq_supervisor.names import KeptName, NamesFile, birth_of
from tests.harness import Supervised
from tests.support import wait_until

HERE = socket.gethostname()


def name(pid: int) -> str:
    return f"{HERE}:{pid}:0a1b2c"


@pytest.fixture
def other() -> Any:
    """Another process."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
    yield process
    process.kill()
    process.wait()


def test_the_dead_are_told_and_the_living_and_other_hosts_left_out(
    tmp_path: Path, other: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names, "LEFTOVER_LIMIT", 0.05)
    living = KeptName(name(other.pid), birth_of(other.pid))
    reused = KeptName(f"{HERE}:{other.pid}:ffff", "1")
    elsewhere = KeptName(f"not-{HERE}:17:0a1b2c", "1")
    NamesFile(tmp_path).write([living, KeptName(name(1)), reused, elsewhere])
    assert stat.S_IMODE((tmp_path / "nodes").stat().st_mode) == 0o600
    assert NamesFile(tmp_path).read_dead() == [name(1), reused.name]
    other.kill()  # it is a zombie until it is waited for
    wait_until(lambda: not birth_of(other.pid), "its end")
    assert living.name in NamesFile(tmp_path).read_dead()


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[",
        "[1]",
        "{}",
        "[" * 100_000,
        '[["x", "y", "z"]]',
        '[["\\ud800:1:a", ""]]',
        '[["../../etc:1:zz", ""]]',
        "7",
    ],
)
def test_what_is_no_list_of_names_is_left_alone(tmp_path: Path, content: str) -> None:
    (tmp_path / "nodes").write_text(content)
    assert NamesFile(tmp_path).read_dead() == []


def test_a_link_is_neither_read_nor_written_through(tmp_path: Path) -> None:
    for link in ("nodes", "nodes.new"):
        (tmp_path / link).symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").write_text(json.dumps([[name(1), ""]]))
    before = (tmp_path / "elsewhere").read_text()
    assert NamesFile(tmp_path).read_dead() == []
    with structlog.testing.capture_logs() as logged:
        for number in (1, 2):
            NamesFile(tmp_path).write([KeptName(name(number))])
    assert [line["event"] for line in logged] == ["names_not_kept"] * 2
    assert (tmp_path / "elsewhere").read_text() == before


def test_a_full_disk_is_told_once_and_nothing_else(tmp_path: Path) -> None:
    file = NamesFile(tmp_path / "missing")
    with structlog.testing.capture_logs() as logged:
        for number in range(1, 4):
            file.write([KeptName(name(number))])
    assert [line["event"] for line in logged] == ["names_not_kept"]


def test_a_supervisor_tells_its_nodes_who_died_with_the_last_one(tmp_path: Path) -> None:
    with Supervised.running("obedient", tmp_path, nodes=2) as first:
        pids = {str(first.pid(f"node {number}/2")) for number in range(2)}
        first.process.kill()
        first.process.wait()
        with Supervised.running("obedient", tmp_path, nodes=2) as second:
            assert second.events("last_nodes")[0]["dead"] == 2
            for number in range(2):
                dead = json.loads((tmp_path / f"env-{number}").read_text())["dead_nodes"]
                assert {told.split(":")[1] for told in dead} == pids
            second.end()


def test_running_nodes_are_told_of_a_death_beside_them(tmp_path: Path) -> None:
    with Supervised.running(
        "listening", tmp_path, nodes=2, policy={"first_delay": 300, "longest_soon": 300}
    ) as supervisor:
        victim = supervisor.pid("node 1/2")
        os.kill(victim, signal.SIGKILL)
        told = tmp_path / "told-0"
        wait_until(lambda: told.exists() and f":{victim}:" in told.read_text(), "the news")
        supervisor.end()
