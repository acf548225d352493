"""Supervisors with real applications on a real Redis, while jobs run: nothing is lost, and no shard has two owners."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import psutil
import pytest

from lowkiq import Lowkiq
from lowkiq_supervisor.control.client import ask
from tests.harness import Supervised, command
from tests.support import SOURCES, RedisServer, wait_until
from tests.warm import COLD

#: Ids of the load; each gets a payload again and again.
IDS = 60

APP = """
import ctypes, json, os, time
from pathlib import Path
import lowkiq
from lowkiq import Lowkiq

app = Lowkiq()

@app.worker(shards_count=6)
def note(payloads_by_id):
    job = lowkiq.current()
    began = time.monotonic()
    if "wedge" in payloads_by_id and not Path("wedged").exists():
        Path("wedged").touch()
        ctypes.PyDLL(None).sleep(300)
    time.sleep(0.002)
    with Path(f"done-{os.getpid()}").open("a") as done:
        for id, payloads in payloads_by_id.items():
            record = [job.shard, job.epoch, os.getpid(), began, time.monotonic(), id, list(payloads)]
            done.write(json.dumps(record) + "\\n")
"""

#: How often TERM meets booting nodes of a real application.
BOOTS = int(os.environ.get("LOWKIQ_TEST_BOOTS", "3"))

LONG_LEASE = {"LOWKIQ_LEASE_TTL": "3600"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(APP)
    return tmp_path


class Shop:
    """The application in a directory, its Redis namespace, and what its jobs have noted."""

    def __init__(self, directory: Path, url: str) -> None:
        self.directory = directory
        self.environment = {"REDIS_URL": url, "LOWKIQ_NAMESPACE": directory.name[-40:].replace("_", "-")}
        self.app = Lowkiq(redis_url=url, namespace=self.environment["LOWKIQ_NAMESPACE"])
        self.worker = self.app.worker(shards_count=6)(note)

    def supervise(self, *arguments: str, state_dir: str = "state", **environment: str) -> Supervised:
        given = self.environment | {"LOWKIQ_STATE_DIR": str(self.directory / state_dir)} | environment
        directory = self.directory
        if state_dir != "state":
            directory = self.directory / f"{state_dir}-log"
            directory.mkdir()
            given["PYTHONPATH"] = f"{SOURCES}:{self.directory}"
        return Supervised.main(directory, "-r", "shop", *arguments, **given)

    def push(self, *ids: str, payload: Any = 0) -> None:
        self.worker.perform_async([{"id": name, "payload": payload} for name in ids])

    def done(self) -> list[list[Any]]:
        found = []
        for path in self.directory.glob("**/done-*"):
            lines = path.read_text().splitlines(keepends=True)
            found += [json.loads(line) for line in lines if line.endswith("\n")]
        return sorted(found, key=lambda record: record[3])

    def pids_of(self, name: str) -> list[int]:
        return [record[2] for record in self.done() if record[5] == name]


def note(payloads_by_id: dict[str, list[Any]]) -> None:
    """Stands for the worker of the same name in the supervised application."""


@pytest.fixture
def shop(project: Path, redis_server: RedisServer) -> Any:
    made = Shop(project, redis_server.url)
    yield made
    made.app.close()


def status(shop: Shop, state_dir: str = "state") -> dict[str, Any]:
    return ask(shop.directory / state_dir, "status")


def test_a_rolling_restart_under_load_loses_nothing_and_no_shard_has_two_owners(shop: Shop) -> None:
    def noted() -> set[tuple[str, int]]:
        return {(record[5], payload) for record in shop.done() for payload in record[6]}

    with shop.supervise("--nodes", "2", **LONG_LEASE).ready(2) as supervisor:
        wanted: set[tuple[str, int]] = set()
        for turn in itertools.count():
            shop.push(*(f"job-{number}" for number in range(IDS)), payload=turn)
            wanted |= {(f"job-{number}", turn) for number in range(IDS)}
            enough = len(wanted) - 2 * IDS
            wait_until(lambda enough=enough: len(noted()) > enough, "progress")
            if turn == 0:
                supervisor.send(signal.SIGHUP)
            if supervisor.events("rolling_restart_over"):
                break

        wait_until(lambda: noted() >= wanted, "every job")
        supervisor.end()
    assert noted() == wanted
    _assert_one_owner_at_a_time(shop.done())


def _assert_one_owner_at_a_time(done: list[list[Any]]) -> None:
    """Each shard has one process an epoch, and epochs that only rise; no id has two jobs at once."""
    of_shard, of_id = defaultdict(list), defaultdict(list)
    for record in done:
        of_shard[record[0]].append(record)
        of_id[record[5]].append(record)
    for id, records in of_id.items():
        for before, after in itertools.pairwise(sorted(records, key=lambda record: record[3])):
            assert after[3] >= before[4], f"jobs of {id} overlap: {before} {after}"
    changes = 0
    for shard, records in of_shard.items():
        owners = {(epoch, pid) for _, epoch, pid, *_ in records}
        assert len({epoch for epoch, _ in owners}) == len(owners), f"an epoch of shard {shard} with two owners"
        assert [record[1] for record in records] == sorted(record[1] for record in records)
        changes += len(owners) - 1
    assert changes > 0, "nothing was handed over: the test has shown nothing"


def test_a_restart_of_one_slot_hands_its_shards_over_without_waiting_for_the_lease(shop: Shop) -> None:
    with shop.supervise("--nodes", "2", **LONG_LEASE).ready(2) as supervisor:
        names = [f"name-{number}" for number in range(24)]  # enough that every shard has some
        shop.push(*names)
        wait_until(lambda: len(shop.done()) == len(names), "the first jobs")
        before = {node["slot"]: node["pid"] for node in status(shop)["nodes"]}
        moved = {record[5] for record in shop.done() if record[2] == before[1]}
        assert moved

        ended = ask(shop.directory / "state", "restart", slot=1)
        assert ended["slots"] == [1]
        supervisor.until_logged("replacing")
        wait_until(lambda: not psutil.pid_exists(before[1]), "the end of the old node")  # which might still take jobs
        shop.push(*names)
        wait_until(lambda: all(len(shop.pids_of(name)) == 2 for name in moved), "the jobs of the node that has gone")
        after = {node["slot"]: node["pid"] for node in status(shop)["nodes"]}
        assert after[0] == before[0]
        # The other one stands in until it is back.
        assert {shop.pids_of(name)[1] for name in moved} <= {before[0], after[1]}
        supervisor.end()


def test_a_job_that_wedges_its_process_in_c_is_dumped_and_run_again_by_the_next(shop: Shop) -> None:
    with shop.supervise("--hang-timeout", "2", **LONG_LEASE).ready(1) as supervisor:
        shop.push("wedge")
        wait_until(lambda: len(shop.pids_of("wedge")) == 1, "the second run")
        died = supervisor.events("died_will_restart")[0]
        assert died["reason"].startswith("hung, no beat for ")
        dumped = supervisor.log_path.read_text()
        assert "Fatal Python error: Aborted" in dumped
        assert "shop.py" in dumped
        supervisor.end()


def test_with_the_same_number_twice_the_second_stands_by_and_takes_over(shop: Shop) -> None:
    lease, number = {"LOWKIQ_LEASE_TTL": "3"}, ("--nodes", "1", "--number-of-nodes", "1")
    with shop.supervise(*number, **lease).ready(1) as first:
        shop.push("before")
        wait_until(lambda: len(shop.pids_of("before")) == 1, "the first job")
        with shop.supervise(*number, state_dir="second", **lease).ready(1) as second:
            wait_until(lambda: status(shop, "second")["nodes"][0]["waits"] > 0, "the second to say that it stands by")
            shop.push("while")
            wait_until(lambda: len(shop.pids_of("while")) == 1, "the second job")
            assert shop.pids_of("while") == [first.pid("node 0/1")]
            first.process.kill()
            assert first.nothing_is_left()
            shop.push("after")
            wait_until(lambda: len(shop.pids_of("after")) == 1, "the take-over once the lease is over")
            assert shop.pids_of("after") == [second.pid("node 0/1")]
            second.end()


@pytest.mark.timeout(60 + 5 * BOOTS)
def test_term_at_any_moment_of_a_real_boot_leaves_no_process_and_no_lease(
    shop: Shop, redis_server: RedisServer
) -> None:
    luck = random.Random(7)
    for _ in range(BOOTS):
        with shop.supervise("--nodes", "2", **LONG_LEASE, **COLD) as supervisor:
            supervisor.until_logged("started", 2)
            time.sleep(luck.uniform(0, 1.2))  # not to wait for something: this is the random moment
            supervisor.end()
        with redis_server.client() as client:
            owners = list(client.scan_iter(f"{shop.environment['LOWKIQ_NAMESPACE']}:*:owner"))
            assert not [key for key in owners if client.hexists(key, "node")]


def test_preloaded_nodes_share_the_application_and_work(shop: Shop) -> None:
    (shop.directory / "shop.py").write_text(APP + "\nPath('imported-by').open('a').write(f'{os.getpid()}\\n')\n")
    with shop.supervise("--nodes", "2", "--preload").ready(2) as supervisor:
        shop.push(*(f"name-{number}" for number in range(24)))
        wait_until(lambda: len(shop.done()) == 24, "the jobs")
        importers = (shop.directory / "imported-by").read_text().splitlines()
        assert importers[1:] == [str(supervisor.process.pid)], "a check that ends again, and no node"
        assert psutil.Process(supervisor.process.pid).num_threads() == 1
        supervisor.send(signal.SIGHUP)
        supervisor.until_logged("restarting_preloaded_code")
        supervisor.until_logged("rolling_restart_over")
        assert (shop.directory / "imported-by").read_text().splitlines() == importers
        assert status(shop)["supervisor"]["preloaded"] is True
        supervisor.end()


def test_an_application_that_starts_threads_is_not_preloaded(shop: Shop) -> None:
    thread = "import threading\nthreading.Thread(target=lambda: time.sleep(60), name='ticker', daemon=True).start()\n"
    (shop.directory / "shop.py").write_text(APP + thread)
    with shop.supervise("--preload") as supervisor:
        assert supervisor.exit_code() == 3
        error = supervisor.events("cannot_start")[0]["error"]
        assert "importing shop starts threads (ticker)" in error
        assert "run without --preload" in error
        assert not supervisor.events("started")


def test_preloading_says_what_can_not_be_imported(shop: Shop) -> None:
    (shop.directory / "shop.py").write_text("import nothing_of_this_name")
    with shop.supervise("--preload") as supervisor:
        assert supervisor.exit_code() == 3
        assert "can't import shop: ModuleNotFoundError" in supervisor.events("cannot_start")[0]["error"]


def test_without_the_embedded_redis_none_is_started(shop: Shop) -> None:
    url = shop.environment.pop("REDIS_URL")
    (shop.directory / "shop.py").write_text(APP.replace("Lowkiq()", f"Lowkiq(redis_url={url!r})"))
    with shop.supervise("--no-embedded-redis").ready(1) as supervisor:
        assert status(shop)["redis"] is None
        assert not supervisor.events("started", "redis")
        shop.push("one")
        wait_until(lambda: len(shop.done()) == 1, "the job")
        supervisor.end()


def test_real_nodes_dump_into_the_state_directory(shop: Shop) -> None:
    with shop.supervise("--nodes", "2") as supervisor:
        pids = supervisor.until_ready(2)
        answer = command(shop.directory, "dump", "--state-dir", str(shop.directory / "state"))
        assert answer.returncode == 0, answer.stderr
        files = [Path(line) for line in answer.stdout.splitlines()]
        assert len(files) == len(pids)
        assert all("lowkiq" in file.read_text() for file in files)
