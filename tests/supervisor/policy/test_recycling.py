"""Recycling, deaths, and what is told of them: real applications on a real Redis."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from lowkiq import Lowkiq
from tests.harness import Supervised, status
from tests.support import RedisServer, wait_until

APP = """
import os, signal, time
from pathlib import Path
from lowkiq import Lowkiq

app = Lowkiq()

@app.worker(shards_count=4, max_retry_count=1)
def work(payloads_by_id):
    for id, payloads in payloads_by_id.items():
        note("begun", id)
        if id == "deadly":
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60)
        if id == "huge":
            held = bytearray(os.urandom(1)) * (200 << 20)
            while not Path("let-go").exists():
                time.sleep(0.05)
        note("ended", id)

def note(what, id):
    with Path(what).open("a") as file:
        file.write(f"{id} {os.getpid()}\\n")
"""


def work(payloads_by_id: dict[str, list[Any]]) -> None:
    """Stands for the worker of the same name in the supervised application."""


class Project:
    """The application, supervised in a directory, and its notes."""

    def __init__(self, directory: Path, url: str) -> None:
        (directory / "shop.py").write_text(APP)
        self.directory = directory
        self.environment = {"REDIS_URL": url, "LOWKIQ_NAMESPACE": directory.name[-40:].replace("_", "-")}
        self.app = Lowkiq(redis_url=url, namespace=self.environment["LOWKIQ_NAMESPACE"])
        self.worker = self.app.worker(shards_count=4)(work)

    def supervise(self, *arguments: str, **environment: str) -> Supervised:
        return Supervised.main(self.directory, "-r", "shop", *arguments, **self.environment, **environment)

    def push(self, *ids: str) -> None:
        self.worker.perform_async([{"id": name} for name in ids])

    def noted(self, what: str) -> list[str]:
        file = self.directory / what
        return [line.split()[0] for line in file.read_text().splitlines()] if file.exists() else []


@pytest.fixture
def project(tmp_path: Path, redis_server: RedisServer) -> Any:
    made = Project(tmp_path, redis_server.url)
    yield made
    made.app.close()


def test_a_job_that_outgrows_the_limit_ends_once_beside_one_successor(project: Project) -> None:
    with project.supervise("--max-rss", "150M", "--drain-timeout", "0.4").ready(1) as supervisor:
        project.push("huge")
        replacing = supervisor.until_logged("replacing")[0]
        assert "MiB of memory, about 150 MiB allowed" in replacing["why"]
        supervisor.until_logged("handing_over")
        project.push(*(f"small-{number}" for number in range(8)))
        wait_until(lambda: len(project.noted("ended")) >= 6, "jobs of other shards, while that one runs on")
        clock = time.monotonic()
        wait_until(lambda: time.monotonic() - clock > 1.6, "several drain timeouts")
        (project.directory / "let-go").touch()
        wait_until(lambda: "huge" in project.noted("ended"), "its end")
        assert supervisor.until_logged("ended_for_successor")[0]["reason"] == "exit code 0"
        wait_until(lambda: len(project.noted("ended")) == 9, "what waited behind it")
        assert project.noted("begun").count("huge") == 1
        node = status(project.directory)["nodes"][0]
        assert (node["replacements"], node["failures"], node["restarts"]) == (1, 0, 1)
        supervisor.end()


def test_after_the_death_of_the_supervisor_the_next_one_has_its_shards_at_once(project: Project) -> None:
    """The lease would be an hour."""
    with project.supervise("--nodes", "2", LOWKIQ_LEASE_TTL="3600").ready(2) as first:
        ids = [f"id-{number}" for number in range(12)]
        project.push(*ids)
        wait_until(lambda: len(project.noted("ended")) == 12, "the first jobs")
        first.send(signal.SIGKILL)
        first.process.wait()
        with project.supervise("--nodes", "2", LOWKIQ_LEASE_TTL="3600").ready(2) as second:
            project.push(*ids)
            wait_until(lambda: len(project.noted("ended")) == 24, "the jobs of every shard")
            second.end()


def test_heartbeats_of_the_healthy_make_an_alert_of_a_slot_that_keeps_failing(project: Project) -> None:
    bad = "\nif os.environ['LOWKIQ_SLOT'] == '1' and Path('bad').exists(): raise OSError('no disk')\n"
    (project.directory / "shop.py").write_text(APP + bad)
    with project.supervise("--nodes", "2").ready(2) as supervisor:
        (project.directory / "bad").touch()
        psutil.Process(supervisor.pid("node 1/2")).kill()
        (alert,) = wait_until(
            lambda: [one for one in project.app.nodes().alerts if one.kind == "crash loop"], "the alert"
        )
        assert "node 1/2 can't start since" in alert.says
        assert "exit code 1, failed before it was ready" in alert.says
        (project.directory / "bad").unlink()
        why = "exit code 1, failed before it was ready"
        wait_until(lambda: any(why in (node.last_exit or "") for node in project.app.nodes().nodes), "its own words")
        supervisor.end()


def test_jobs_that_kill_their_only_node_before_it_is_ready_end_nothing_but_themselves(project: Project) -> None:
    project.push("deadly", *(f"id-{number}" for number in range(12)))
    with project.supervise("--nodes", "1") as supervisor:
        wait_until(lambda: len(project.noted("ended")) == 12, "the innocent jobs")
        supervisor.until_ready(1)
        died = supervisor.events("died_will_restart")
        assert {line["kind"] for line in died} == {"job"}
        wait_until(lambda: project.noted("begun").count("deadly") == 3, "the third run, which tells who it was")
        assert len(died) == 2, "the third is in a process of its own"
        supervisor.end()
