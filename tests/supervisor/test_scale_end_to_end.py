"""More and fewer nodes while real jobs run: the load is followed, and nothing is lost or out of order."""

from __future__ import annotations

import itertools
import json
import signal
import zlib
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from lowkiq import Lowkiq
from lowkiq_supervisor.control.client import ask
from lowkiq_supervisor.errors import CommandRefused
from tests.harness import Supervised, state_dir, status
from tests.support import RedisServer, wait_until

APP = """
import json, os, time
from pathlib import Path
import lowkiq
from lowkiq import Lowkiq

app = Lowkiq(threads_per_node=2)

@app.worker(shards_count=12)
def work(payloads_by_id):
    began = time.monotonic()
    if any(id.startswith("long") for id in payloads_by_id):
        while not Path("let-go").exists():
            time.sleep(0.02)
    time.sleep(float(os.environ.get("JOB", "0.02")))
    with Path(f"done-{os.getpid()}").open("a") as done:
        for id, payloads in payloads_by_id.items():
            done.write(json.dumps([id, payloads, began, time.monotonic(), os.getpid()]) + "\\n")

@app.worker(shards_count=4)
async def wait(payloads_by_id):
    pass
"""

#: The policy's seconds; a node tells its load once a second.
HASTY = {"policy.load.GROW_AFTER": 2.0, "policy.load.SHRINK_AFTER": 4.0, "policy.load.PUNCTUAL": 0.5}


def work(payloads_by_id: dict[str, list[Any]]) -> None:
    """Stands for the worker of the same name in the supervised application."""


class Project:
    """The application, supervised in a directory, and what its jobs have noted."""

    def __init__(self, directory: Path, url: str, client: Any) -> None:
        self.redis = client
        (directory / "shop.py").write_text(APP)
        self.directory = directory
        self.environment = {"REDIS_URL": url, "LOWKIQ_NAMESPACE": directory.name[-40:].replace("_", "-")}
        self.app = Lowkiq(redis_url=url, namespace=self.environment["LOWKIQ_NAMESPACE"])
        self.worker = self.app.worker(shards_count=12)(work)

    def supervise(self, *arguments: str, **environment: str) -> Supervised:
        given = self.environment | environment
        return Supervised.with_constants(HASTY, self.directory, "-r", "shop", *arguments, **given)

    def push(self, ids: int, payload: int) -> None:
        self.worker.perform_async([{"id": f"id-{number}", "payload": payload} for number in range(ids)])

    def shards_of(self, node: str) -> set[int]:
        """The worker's shards that a node has."""
        owners = (f"{self.environment['LOWKIQ_NAMESPACE']}:{{work:{shard}}}:owner" for shard in range(12))
        return {shard for shard, key in enumerate(owners) if self.redis.hget(key, "node") == node.encode()}

    def done(self) -> list[list[Any]]:
        lines = [line for path in self.directory.glob("done-*") for line in path.read_text().splitlines(keepends=True)]
        return sorted((json.loads(line) for line in lines if line.endswith("\n")), key=lambda record: record[2])

    def nodes(self) -> int:
        return len(status(self.directory)["nodes"])


@pytest.fixture
def project(tmp_path: Path, redis_server: RedisServer) -> Any:
    with redis_server.client() as client:
        made = Project(tmp_path, redis_server.url, client)
        yield made
        made.app.close()


def test_work_that_piles_up_brings_nodes_and_rest_sends_them_away(project: Project) -> None:
    with project.supervise("--nodes", "1..3", JOB="0.25").ready(1) as supervisor:
        for payload in itertools.count():
            project.push(100, payload)
            wait_until(
                lambda enough=80 * payload: project.nodes() == 3 or len(project.done()) > enough, "progress", every=0.2
            )
            if project.nodes() == 3:
                break
        grown = supervisor.events("scaling")
        assert [(line["before"], line["to"]) for line in grown] == [(1, 2), (2, 3)]
        assert all("all threads were busy, and jobs late" in line["why"] for line in grown)
        wait_until(lambda: len({record[4] for record in project.done()}) == 3, "jobs on all three")
        assert len(supervisor.events("sent_away")) == 0
        wait_until(
            lambda: supervisor.events("scaling")[-1]["to"] == 1 and not status(project.directory)["beside"],
            "one node again", every=0.2,
        )  # fmt: skip
        supervisor.end()
    assert_nothing_is_lost(project.done(), 100, payload + 1)


def test_scaled_up_and_down_while_jobs_run_nothing_is_lost_or_out_of_order(project: Project) -> None:
    with project.supervise("--nodes", "1", LOWKIQ_LEASE_TTL="3600").ready(1) as supervisor:
        turns = iter(itertools.count())

        def until(nodes: int, turns_more: int = 2) -> None:
            """Pushes on until so many nodes are there, and all of them have run something."""
            ask(state_dir(project.directory), "scale", nodes=nodes)
            seen, left = len(project.done()), turns_more
            while left > 0:
                turn = next(turns)
                project.push(60, turn)
                wait_until(lambda turn=turn: len(project.done()) >= 60 * turn, "the turns before", every=0.05)
                found = status(project.directory)
                workers = {record[4] for record in project.done()[seen:]}
                if {node["pid"] for node in found["nodes"]} <= workers and len(found["nodes"]) == nodes:
                    left -= not found["beside"]

        for nodes in (3, 1, 2, 1):
            until(nodes)
        assert len(supervisor.events("sent_away")) == 3
        last = next(turns)
        wait_until(lambda: sum(len(record[1]) for record in project.done()) == 60 * last, "every job")
        supervisor.end()
    assert_nothing_is_lost(project.done(), 60, last)
    assert {line["reason"] for line in supervisor.events("ended")} == {"exit code 0"}


def test_a_node_that_is_sent_away_finishes_its_job_while_the_others_take_its_shards(project: Project) -> None:
    with project.supervise("--nodes", "2", LOWKIQ_LEASE_TTL="3600").ready(2) as supervisor:
        leaving = next(node for node in status(project.directory)["nodes"] if node["slot"] == 1)
        shards = wait_until(lambda: len(found := project.shards_of(leaving["node"])) == 6 and found, "its half")
        long = next(id for id in map("long-{}".format, range(10_000)) if zlib.crc32(id.encode()) % 12 in shards)
        project.worker.perform_async([{"id": long, "payload": 0}])
        wait_until(lambda: status(project.directory)["nodes"][1]["busy"], "the long job")
        ask(state_dir(project.directory), "scale", nodes=1)
        project.push(60, 0)
        wait_until(lambda: len(project.done()) == 60, "all jobs but the long one, those of its shard among them")
        assert [node["pid"] for node in status(project.directory)["beside"]] == [leaving["pid"]]
        assert project.shards_of(leaving["node"]) == set()
        (project.directory / "let-go").touch()
        wait_until(lambda: len(project.done()) == 61, "the long job's end")
        supervisor.send(signal.SIGTERM)
        supervisor.ends(0)
    assert [record[4] for record in project.done() if record[0] == long] == [leaving["pid"]], "it ran once"


def assert_nothing_is_lost(done: list[list[Any]], ids: int, payloads: int) -> None:
    """Each id has had all payloads once, lower ones first, and one job at a time."""
    of_id = defaultdict(list)
    for record in done:
        of_id[record[0]].append(record)
    assert len(of_id) == ids
    for id, records in of_id.items():
        assert [payload for record in records for payload in record[1]] == list(range(payloads)), id
        for before, after in itertools.pairwise(records):
            assert after[2] >= before[3], f"jobs of {id} overlap: {before} {after}"


def test_a_range_needs_nodes_that_the_application_doesn_t_deal_shards_to(project: Project) -> None:
    splitter = "app = Lowkiq(build_splitter=lambda *_: lambda shards: [shards])\n"
    (project.directory / "shop.py").write_text(APP.replace("app = Lowkiq(threads_per_node=2)\n", splitter))
    with project.supervise("--nodes", "1..2") as supervisor:
        supervisor.ends(3)
        refused = supervisor.events("boot_refused")[0]["error"]
        assert refused.startswith("--nodes 1..2 needs nodes that share the shards among themselves, and the app")
    with project.supervise("--nodes", "1").ready(1) as supervisor:
        with pytest.raises(CommandRefused, match="build_splitter deals the shards"):
            ask(state_dir(project.directory), "scale", nodes=2)
        supervisor.end()
