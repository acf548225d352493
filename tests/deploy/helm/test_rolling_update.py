"""
From four pods to six under load, as a StatefulSet does it: the new ones come at once, then each old one gets TERM, its
grace, and a successor that counts six. Meanwhile old and new disagree on whose part a shard is.

And a Deployment of pods that nobody numbers: from two to six, back, and through a roll-out.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from lowkiq import Lowkiq
from lowkiq.environment import ExitCode
from tests.deploy.helm.chart import container, objects, one
from tests.deploy.helm.containers import Container
from tests.support import RedisServer, wait_until

Start = Callable[..., Container]

BEFORE, AFTER, SHARDS = 4, 6, 24
IDS = [f"order-{number}" for number in range(120)]
DRAIN = 25
#: Seconds between a pod that is ready and the next one's turn (minReadySeconds): long enough for shards to be missed.
MIN_READY = float(os.environ.get("LOWKIQ_TEST_MIN_READY", "2"))

APP = f"""
import json, os, time
from lowkiq import Lowkiq

app = Lowkiq()
records = f"{{app.settings.namespace}}:records"


@app.worker(queue_name="orders", shards_count={SHARDS}, batch_size=5)
def sync(payloads_by_id):
    node = os.environ.get("NODE_NUMBER", str(os.getpid())) + "/" + os.environ.get("NUMBER_OF_NODES", "?")
    app.redis().rpush(records, json.dumps(["start", node, list(payloads_by_id), time.time()]))
    time.sleep(0.002)
    done = {{id: payloads for id, payloads in payloads_by_id.items()}}
    app.redis().rpush(records, json.dumps(["end", node, done, time.time()]))
"""


class Load:
    """Pushes versions of every id, over and over, from a thread."""

    def __init__(self, app: Lowkiq) -> None:
        self.pushed: dict[str, int] = dict.fromkeys(IDS, 0)
        self._worker = app.worker(queue_name="orders", shards_count=SHARDS)(lambda _: None)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ending.wait(0.05):
            version = self.pushed[IDS[0]] + 1
            self._worker.perform_async({"id": id, "payload": version, "score": version} for id in IDS)
            self.pushed = dict.fromkeys(IDS, version)

    def end(self) -> None:
        self._ending.set()
        self._thread.join()


@pytest.fixture
def start(tmp_path_factory: pytest.TempPathFactory, redis_server: RedisServer, app: Lowkiq) -> Start:
    """Starts the pod of that ordinal, of a StatefulSet of so many, or of a Deployment."""
    directory = tmp_path_factory.mktemp("pods")  # short, since a unix socket's path is

    def make(ordinal: int, replicas: int, **more: str) -> Container:
        values = {"app": "shop", "replicas": replicas, "nodes": 1, "drainTimeout": DRAIN} | more
        values |= {"redis": {"namespace": app.settings.namespace}}
        manifest = container(one(objects(values), more.get("workload", "StatefulSet")))
        own = directory / f"{ordinal}-of-{replicas}"
        own.mkdir()
        (own / "shop.py").write_text(APP)
        told = {} if more else {"NODE_NUMBER": f"shop-lowkiq-{ordinal}"}
        told["LOWKIQ_REDIS_URL"] = redis_server.url
        return Container(manifest, own, **told).__enter__()

    return make


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_roll_out_from_four_to_six_loses_nothing_keeps_order_and_stalls_no_shard_for_longer_than_a_drain(
    start: Start, app: Lowkiq
) -> None:
    pods = {ordinal: start(ordinal, BEFORE) for ordinal in range(BEFORE)}
    load = None
    try:
        wait_until(lambda: all(is_ready(pod) for pod in pods.values()), every=0.2)
        load = Load(app)
        wait_until(lambda: len(read_records(app)) > 100)
        began = time.time()
        roll_out(pods, start)
        ended = time.time()
        wait_until(lambda: owners_are_the_new_ones(app), every=0.2)
        load.end()
        wait_until(lambda: (row := app.metrics()["orders"]) and row.length + row.busy == 0)
    finally:
        if load:
            load.end()
        codes = [pod.end() for pod in pods.values()]
    assert codes == [ExitCode.DRAINED] * AFTER
    assert app.metrics()["orders"].morgue_length == 0
    records = read_records(app)
    assert_each_id_saw_every_version_in_order(records, load.pushed)
    assert_no_id_ran_at_two_nodes(records)
    stall = longest_stall(records, began, ended + MIN_READY)
    print(f"longest stall {stall:.1f} s")
    assert stall < DRAIN


@pytest.mark.rare
@pytest.mark.timeout(300)
def test_a_deployment_scaled_from_two_to_six_and_back_and_rolled_out_loses_nothing_and_waits_for_no_lease(
    start: Start, app: Lowkiq
) -> None:
    begin = partial(start, replicas=2, ownership="elastic", workload="Deployment")
    pods, over = [begin(ordinal) for ordinal in range(2)], list[int]()
    load = None
    try:
        until_all_share(app, pods)
        load = Load(app)
        wait_until(lambda: len(read_records(app)) > 100)
        marks = [time.time()]
        pods += [begin(ordinal) for ordinal in range(2, 6)]  # kubectl scale --replicas=6
        until_all_share(app, pods)
        marks.append(time.time())
        going, pods = pods[2:], pods[:2]
        for pod in going:  # and back: all four get TERM at once
            pod.process.terminate()
        over += [pod.process.wait(60) for pod in going]
        until_all_share(app, pods)
        marks.append(time.time())
        for ordinal in range(6, 8):  # a new image, with maxSurge 1 and maxUnavailable 0
            pods.append(begin(ordinal))
            until_all_share(app, pods)
            over.append(pods.pop(0).end())
            until_all_share(app, pods)
        marks.append(time.time())
        load.end()
        wait_until(lambda: (row := app.metrics()["orders"]) and row.length + row.busy == 0)
    finally:
        if load:
            load.end()
        over += [pod.end() for pod in pods]
    assert over == [ExitCode.DRAINED] * 8
    records = read_records(app)
    assert_each_id_saw_every_version_in_order(records, load.pushed)
    assert_no_id_ran_at_two_nodes(records)
    stalls = [longest_stall(records, *span) for span in pairwise(marks)]
    print("longest stalls: {:.1f} s to six, {:.1f} s to two, {:.1f} s in the roll-out".format(*stalls))
    assert max(stalls) < app.settings.lease_ttl


def until_all_share(app: Lowkiq, pods: list[Container]) -> None:
    """Waits until all pods are ready, and each has its part of the shards, to within one."""
    wait_until(lambda: all(map(is_ready, pods)), every=0.2)

    def do_share() -> bool:
        parts = [len(node.owned.get("orders", [])) for node in app.nodes().nodes if node.state == "ready"]
        return len(parts) == len(pods) and sum(parts) == SHARDS and max(parts) - min(parts) <= 1

    wait_until(do_share, every=0.2)


def is_ready(pod: Container) -> bool:
    return pod.passes("readiness")


def roll_out(pods: dict[int, Container], start: Start) -> None:
    """Rolls out as the StatefulSet's controller does, with podManagementPolicy Parallel."""
    for ordinal in range(BEFORE, AFTER):
        pods[ordinal] = start(ordinal, AFTER)
    for ordinal in reversed(range(AFTER)):
        if ordinal < BEFORE:
            assert pods[ordinal].end() == ExitCode.DRAINED, pods[ordinal].log.read_text()
            pods[ordinal] = start(ordinal, AFTER)
        wait_until(partial(is_ready, pods[ordinal]), every=0.2)
        threading.Event().wait(MIN_READY)


def read_records(app: Lowkiq) -> list[Any]:
    return [json.loads(row) for row in app.redis().lrange(f"{app.settings.namespace}:records", 0, -1)]


def owners_are_the_new_ones(app: Lowkiq) -> bool:
    """Each shard is run by the node whose part it is, and nobody stands in any more."""
    found = app.nodes()
    owned = {node.node_number: node.owned.get("orders", []) for node in found.nodes}
    return not found.missing and all(
        owned.get(number) == [shard for shard in range(SHARDS) if shard % AFTER == number] for number in range(AFTER)
    )


def assert_each_id_saw_every_version_in_order(records: list[Any], pushed: dict[str, int]) -> None:
    seen: dict[str, list[int]] = defaultdict(list)
    for what, _, jobs, _ in records:
        if what == "end":
            for id, versions in jobs.items():
                seen[id] += versions
    for id in IDS:
        assert seen[id] == list(range(1, pushed[id] + 1))


def assert_no_id_ran_at_two_nodes(records: list[Any]) -> None:
    running: dict[str, str] = {}
    for what, node, jobs, _ in records:
        for id in jobs:
            if what == "start":
                assert id not in running, f"{id} is at {running[id]} and at {node}"
                running[id] = node
            else:
                del running[id]


def longest_stall(records: list[Any], began: float, ended: float) -> float:
    """Seconds for which an id was not run, though there was always something new for it."""
    last: dict[str, float] = dict.fromkeys(IDS, began)
    longest = 0.0
    for what, _, jobs, at in records:
        if what == "start" and began <= at <= ended:
            for id in jobs:
                longest = max(longest, at - last[id])
                last[id] = at
    return max(longest, *(ended - at for at in last.values() if at < ended - 1), 0.0)
