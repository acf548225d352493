"""What a death of a node costs those that are no poison, measured under a real supervisor (I9)."""

from __future__ import annotations

import datetime
import itertools
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lowkiq import Lowkiq
from lowkiq.job import shard_of
from tests.harness import Supervised
from tests.support import RedisServer, wait_until

pytestmark = pytest.mark.long

APP = """
import asyncio, os, time
from pathlib import Path
from lowkiq import Lowkiq

app = Lowkiq()

def note(what, ids, *words):
    with Path(f"{what}-{os.getpid()}").open("a") as file:
        file.write("".join(" ".join((id, *words)) + chr(10) for id in ids))

@app.worker(shards_count=5)
def mixed(payloads_by_id):
    note("started", payloads_by_id, str(time.time()))
    while not (Path("go").exists() or "quick" in "".join(payloads_by_id)):
        time.sleep(0.05)
    note("done", payloads_by_id)

@app.worker(shards_count=5, batch_size=100)
def threads(payloads_by_id):
    note("started", payloads_by_id, "0")
    time.sleep(0.01 * len(payloads_by_id))
    note("done", payloads_by_id)

@app.worker(shards_count=5, batch_size=100)
async def tasks(payloads_by_id):
    note("started", payloads_by_id, "0")
    await asyncio.sleep(0.01 * len(payloads_by_id))
    note("done", payloads_by_id)
"""
LONG = {f"long-{number}" for number in range(3)}
SHARDS, BATCH = 5, 100


class World:
    """One node under a supervisor."""

    def __init__(self, directory: Path, server: RedisServer, namespace: str) -> None:
        self.directory, self.namespace = directory, namespace
        (directory / "shop.py").write_text(APP)
        self.app = Lowkiq(redis_url=server.url, namespace=namespace)
        environment = {"REDIS_URL": server.url, "LOWKIQ_NAMESPACE": namespace}
        self.supervisor = Supervised.main(directory, "-r", "shop", "--nodes", "1", **environment)

    def push(self, queue: str, ids: list[str]) -> None:
        worker = self.app.workers.get(queue) or self.app.worker(queue_name=queue, shards_count=SHARDS)(lambda _: None)
        worker.perform_async([{"id": id} for id in ids])

    def noted(self, what: str) -> Iterator[list[str]]:
        for path in self.directory.glob(f"{what}-*"):
            yield from (line.split() for line in path.read_text().splitlines())

    def done(self) -> set[str]:
        return {words[0] for words in self.noted("done")}

    def runs(self, id: str) -> int:
        return sum(words[0] == id for words in self.noted("started"))

    def kill(self, deaths: int) -> float:
        """Kills the node, for the first, second … time; returns when the next one was ready."""
        os.kill(self.supervisor.pid("node 0/1"), signal.SIGKILL)
        line = self.supervisor.until_logged("ready", deaths + 1, "node 0/1")[-1]
        return datetime.datetime.fromisoformat(line["timestamp"]).timestamp()


@pytest.fixture
def world(tmp_path: Path, redis_server: RedisServer, app: Lowkiq) -> Iterator[World]:
    world = World(tmp_path, redis_server, app.settings.namespace)
    with world.supervisor.ready(1):
        yield world
        world.supervisor.end()


class Load(threading.Thread):
    """A hundred quick jobs a second, each of an id of its own."""

    def __init__(self, world: World) -> None:
        super().__init__(daemon=True)
        self._world, self.stopping = world, threading.Event()
        self.pushed: dict[str, float] = {}

    def run(self) -> None:
        for number in itertools.count():
            if self.stopping.wait(0.01):
                return
            self.pushed[f"quick-{number}"] = time.time()
            self._world.push("mixed", [f"quick-{number}"])

    def waits(self, count: int, ready: float) -> list[float]:
        """How long the first so many have waited while the node was ready, the shortest first."""
        began = dict(sorted((words[0], float(words[1])) for words in self._world.noted("started")))  # the last run
        begins = [(began.get(id, time.time()), pushed) for id, pushed in [*self.pushed.items()][:count]]
        return sorted(begin - max(pushed, ready) for begin, pushed in begins if begin > ready)


@pytest.mark.timeout(180)
def test_quick_jobs_do_not_wait_for_long_ones_whose_node_has_died(world: World) -> None:
    """The first death, and the second: from then on the long ones have processes of their own."""
    world.push("mixed", [*LONG])
    load = Load(world)
    load.start()
    wait_until(lambda: "quick-200" in world.done(), every=0.05)
    usual = load.waits(200, 0.0)[-1]  # on a busy machine some wait though nobody dies
    for deaths in (1, 2):
        wait_until(lambda: all(world.runs(id) >= deaths for id in LONG), every=0.05)  # noqa: B023
        ready = world.kill(deaths)
        wait_until(lambda: all(world.runs(id) > deaths for id in LONG), every=0.05)  # noqa: B023
        seen = len(load.pushed)
        wait_until(lambda: len(load.pushed) >= seen + 300, every=0.05)  # noqa: B023
        wait_until(lambda: f"quick-{seen + 290}" in world.done(), every=0.05)  # noqa: B023
        waits = load.waits(seen + 290, ready)
        p50, p99 = (waits[len(waits) * share // 100] for share in (50, 99))
        print(f"death {deaths}: {len(waits)} waits, p50 {p50:.4f}, p99 {p99:.4f}, max {waits[-1]:.4f}")
        assert waits[-1] <= 1.0 + usual
    load.stopping.set()
    load.join()
    assert not LONG & world.done()
    (world.directory / "go").touch()
    wait_until(lambda: {*load.pushed, *LONG} <= world.done())


@pytest.mark.timeout(180)
@pytest.mark.parametrize("queue", ["threads", "tasks"])
def test_innocents_in_hand_are_done_again_within_twice_their_time(world: World, queue: str) -> None:
    plain = spent(world, queue, ids_of("plain"), time.time())
    ids = ids_of("innocent")
    world.push(queue, ids)
    wait_until(lambda: {words[0] for words in world.noted("started")} >= {*ids}, every=0.01)
    assert not world.done() & {*ids}
    ready = world.kill(1)
    wait_until(lambda: {*ids} <= world.done(), every=0.01)
    again = time.time() - ready
    print(f"{queue}: plain {plain:.2f} s, again {again:.2f} s")
    assert again <= 2 * plain


def ids_of(kind: str) -> list[str]:
    """Five hundred, a batch in each shard."""
    found: dict[int, list[str]] = {shard: [] for shard in range(SHARDS)}
    for number in itertools.count():
        id = f"{kind}-{number}"
        if len(in_shard := found[shard_of(id.encode(), SHARDS)]) < BATCH:
            in_shard.append(id)
        elif all(len(ids) == BATCH for ids in found.values()):
            break
    return [id for ids in found.values() for id in ids]


def spent(world: World, queue: str, ids: list[str], since: float) -> float:
    """Seconds until all of them are done."""
    world.push(queue, ids)
    wait_until(lambda: {*ids} <= world.done(), every=0.01)
    return time.time() - since
