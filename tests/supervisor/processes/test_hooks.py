"""Hooks of the application around its nodes' processes, and which processes the kernel takes first."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.harness import Supervised
from tests.support import RedisServer, wait_until

APP = """
import atexit, os, time
from pathlib import Path
from lowkiq import Lowkiq

def note(what):
    with Path("hooks").open("a") as file:
        file.write(f"{os.getpid()} {what}\\n")

def ended(reason):
    note(f"ended {reason}")
    if Path("hang").exists():
        time.sleep(300)
    if Path("fail").exists():
        raise RuntimeError("no")

def before():
    note("before")
    while Path("wait").exists():
        time.sleep(0.01)

atexit.register(note, "exit")
app = Lowkiq(before_fork=before, node_started=lambda: note("started"), node_ended=ended)

@app.worker
def work(payloads_by_id):
    pass
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(APP)
    return tmp_path


def supervise(project: Path, redis_server: RedisServer, *arguments: str) -> Supervised:
    environment = {"REDIS_URL": redis_server.url, "LOWKIQ_NAMESPACE": project.name[-40:].replace("_", "-")}
    return Supervised.main(project, "-r", "shop", *arguments, **environment)


def noted(project: Path, what: str) -> list[tuple[int, str]]:
    lines = (project / "hooks").read_text().splitlines() if (project / "hooks").exists() else []
    found = [(int(line.split(" ", 1)[0]), line.split(" ", 1)[1]) for line in lines]
    return [(pid, text) for pid, text in found if text.startswith(what)]


def test_a_node_tells_when_it_is_ready_and_another_process_why_it_has_ended(
    project: Path, redis_server: RedisServer
) -> None:
    with supervise(project, redis_server, "--nodes", "2").ready(2) as supervisor:
        pids = {supervisor.pid(f"node {number}/2") for number in range(2)}
        wait_until(lambda: {pid for pid, _ in noted(project, "started")} == pids, "the nodes' own words")
        os.kill(supervisor.pid("node 1/2"), signal.SIGKILL)
        ((caller, reason),) = wait_until(lambda: noted(project, "ended"), "the hook")
        assert reason == "ended node 1/2: killed by SIGKILL, ended from outside"
        assert caller not in {*pids, supervisor.process.pid}
        assert not noted(project, "before")
        assert supervisor.events("before_fork_not_called")
        supervisor.until_ready(3)
        supervisor.end()
        assert len(noted(project, "ended")) == 1, "the end of everything is no news"


def test_preloaded_it_is_called_before_each_fork(project: Path, redis_server: RedisServer) -> None:
    with supervise(project, redis_server, "--nodes", "2", "--preload").ready(2) as supervisor:
        assert [pid for pid, _ in noted(project, "before")] == [supervisor.process.pid] * 2
        os.kill(supervisor.pid("node 1/2"), signal.SIGKILL)
        wait_until(lambda: noted(project, "ended"), "the hook")
        supervisor.until_logged("ready", 2, "node 1/2")
        assert len(noted(project, "before")) == 3
        supervisor.end()


def test_a_signal_ends_a_supervisor_whose_hook_hangs(project: Path, redis_server: RedisServer) -> None:
    (project / "wait").touch()
    with supervise(project, redis_server, "--preload") as supervisor:
        wait_until(lambda: noted(project, "before"), "the hook")
        supervisor.end()
        assert supervisor.events("before_fork_interrupted")


def test_what_a_preloaded_application_has_registered_runs_at_the_end_of_each_process(
    project: Path, redis_server: RedisServer
) -> None:
    with supervise(project, redis_server, "--preload").ready(1) as supervisor:
        pids = [supervisor.pid("node 0/1"), supervisor.process.pid]
        (checked,) = [pid for pid, _ in noted(project, "exit")]
        supervisor.end()
        assert [pid for pid, _ in noted(project, "exit")] == [checked, *pids]


@pytest.mark.parametrize(
    ("trouble", "reason"), [("fail", "exit code 1"), pytest.param("hang", "killed by SIGKILL", marks=pytest.mark.long)]
)
def test_a_hook_that_fails_or_hangs_is_an_event_and_nothing_more(
    project: Path, redis_server: RedisServer, trouble: str, reason: str
) -> None:
    (project / trouble).touch()
    with supervise(project, redis_server).ready(1) as supervisor:
        os.kill(supervisor.pid("node 0/1"), signal.SIGKILL)
        supervisor.until_logged("ready", 2, "node 0/1")
        failed = supervisor.until_logged("hook_failed")[0]
        assert (failed["hook"], failed["reason"]) == ("node_ended", reason)
        supervisor.end()


def test_out_of_memory_the_kernel_takes_a_node_before_the_supervisor_and_redis(tmp_path: Path) -> None:
    def score(pid: int) -> int:
        return int(Path(f"/proc/{pid}/oom_score_adj").read_text())

    if not Path("/proc/self/oom_score_adj").exists():
        pytest.skip("no such thing here")
    options: dict[str, Any] = {"nodes": 1, "embedded": True}
    with Supervised.running("obedient", tmp_path, **options) as supervisor:
        own = score(supervisor.process.pid)
        assert score(supervisor.pid("redis")) == own
        assert score(supervisor.pid("node 0/1")) == min(1000, own + 200)
        supervisor.end()
