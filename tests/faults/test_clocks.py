"""Real nodes and a real Redis whose clocks are set back, set forwards, or wrong by hours while jobs run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from lowkiq.admin.beats import health
from lowkiq.admin.past.history import read_history
from tests.faults.other_clock import OtherClock
from tests.node.nodes import Nodes
from tests.support import running_redis, wait_until

HOUR = 3_600
#: Of a node's lease here; what waits for one may take some of these.
TTL = 2.0

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it is done by LD_PRELOAD")


@pytest.fixture
def redis_clock(tmp_path: Path) -> OtherClock:
    return OtherClock(tmp_path, "redis")


@pytest.fixture
def nodes(tmp_path: Path, redis_clock: OtherClock) -> Iterator[Nodes]:
    with ExitStack() as stack:
        with redis_clock.worn():
            server = stack.enter_context(running_redis())
        yield stack.enter_context(Nodes(tmp_path, server, "ns"))


def redis_ahead(nodes: Nodes) -> float:
    seconds, _ = nodes.app.redis().time()
    return float(seconds) - time.time()


def assert_order(nodes: Nodes) -> None:
    """
    Of each id: payloads that start for the first time are higher than all that have. Epochs of a shard only rise, but
    for what an owner had in hand whose lease a clock has ended that was set forwards: a later one runs all of that too.
    """
    highest: dict[str, int] = {}
    epochs: dict[int, int] = {}
    #: The highest epoch by which each payload was started, and those by which one was after a later one had begun.
    started: dict[tuple[str, int], int] = {}
    late: list[tuple[str, int, int]] = []
    for row in nodes.records("start"):
        _, _, jobs, epoch_text, shard, _ = row
        epoch = int(epoch_text)
        is_late = epoch < epochs.get(shard, 0)
        epochs[shard] = max(epoch, epochs.get(shard, 0))
        for id, payloads in jobs.items():
            for payload in payloads:
                number = payload.get("n", 0)
                is_new = (id, number) not in started
                assert not is_new or number > highest.get(id, -1), f"{id}: {number} after {highest[id]}"
                started[id, number] = max(epoch, started.get((id, number), 0))
                highest[id] = max(highest.get(id, -1), number)
                late += [(id, number, epoch)] if is_late else []
    for id, number, epoch in late:
        assert started[id, number] > epoch, f"{id}: {number} was started by an owner of before, and by nobody later"


def test_set_back_by_an_hour_while_a_node_dies(
    nodes: Nodes, redis_clock: OtherClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lease ends within one ttl, what was queued runs, and it is told to be late."""
    doomed = nodes.start(lease_ttl=TTL, poll_interval=0.2).wait_ready()
    other = nodes.start(lease_ttl=TTL, poll_interval=0.2).wait_ready()
    for n in range(10):
        nodes.push(*({"id": f"id-{i}", "payload": {"n": n, "sleep": 0.005}} for i in range(20)))
    wait_until(lambda: nodes.recorded() > 40)
    other.send(signal.SIGSTOP)  # so that the lease it waits for is of the old time
    redis_clock.set(-HOUR)
    doomed.kill()
    other.send(signal.SIGCONT)
    assert redis_ahead(nodes) == pytest.approx(-HOUR, abs=60)
    for n in range(10, 20):
        nodes.push(*({"id": f"id-{i}", "payload": {"n": n, "sleep": 0.005}} for i in range(20)))
    wait_until(nodes.is_done)
    done = {(id, p["n"]) for row in nodes.records("end") for id, payloads in row[2].items() for p in payloads}
    assert done == {(f"id-{i}", n) for i in range(20) for n in range(20)}
    assert_order(nodes)
    assert nodes.metrics().morgue_length == 0
    monkeypatch.setattr(health, "LATE_AFTER", 3.0)  # nodes of the tests beat each second
    wait_until(lambda: str(doomed.pid) in " ".join(nodes.app.nodes().late))


def test_set_back_and_forwards_under_load(nodes: Nodes, redis_clock: OtherClock) -> None:
    """Nothing is lost, nothing runs out of order; nodes that lost shards get them again."""
    both = [nodes.start(lease_ttl=TTL, poll_interval=0.2, max_crashes=1_000).wait_ready() for _ in range(2)]
    steps = [HOUR, -HOUR, 5 * HOUR, -24 * HOUR, 3, -3, 0]
    for turn, step in enumerate(steps):
        nodes.push(*({"id": f"id-{i}", "payload": {"n": turn, "sleep": 0.002}} for i in range(60)))
        before = nodes.recorded()
        wait_until(lambda before=before: nodes.recorded() > before + 10 or nodes.is_done())
        redis_clock.set(step)
    wait_until(nodes.is_done)
    done = {(id, p["n"]) for row in nodes.records("end") for id, payloads in row[2].items() for p in payloads}
    assert done == {(f"id-{i}", turn) for i in range(60) for turn in range(len(steps))}
    assert_order(nodes)
    assert nodes.metrics().morgue_length == 0
    assert all(node.is_running() for node in both)


def test_set_back_history_and_heartbeats_go_on(nodes: Nodes, redis_clock: OtherClock) -> None:
    nodes.start().wait_ready()
    nodes.push({"id": "a", "payload": {}})
    caller = nodes.app.caller
    wait_until(lambda: read_history(caller, "ns", "jobs", "5m"))
    redis_clock.set(-24 * HOUR)
    yesterday = time.time() - 24 * HOUR
    wait_until(lambda: any(abs(point.at - yesterday) < 300 for point in read_history(caller, "ns", "jobs", "5m")))
    wait_until(lambda: nodes.app.nodes().is_well)
    assert nodes.app.nodes().nodes[0].beat_age < 60


@pytest.mark.parametrize("hours", [-10, 10])
def test_clocks_of_nodes_that_are_wrong_by_hours_change_nothing(nodes: Nodes, tmp_path: Path, hours: int) -> None:
    """Leases, retries and delays go by Redis's clock alone."""
    wrong = OtherClock(tmp_path, "node", hours * HOUR)
    with wrong.worn():
        skewed = nodes.start(lease_ttl=TTL, poll_interval=0.2).wait_ready()
    right = nodes.start(lease_ttl=TTL, poll_interval=0.2).wait_ready()
    nodes.push(
        *({"id": f"id-{i}", "payload": {"n": 0}} for i in range(20)),
        {"id": "failing", "payload": {"failures": 2}},
        {"id": "delayed", "payload": {}, "perform_in": time.time() + 1},
        {"id": "tomorrow", "payload": {}, "perform_in": time.time() + 24 * HOUR},
    )
    wait_until(lambda: nodes.metrics().length == 1 and nodes.metrics().busy == 0)
    assert not nodes.started("tomorrow")
    assert {row[1] for row in nodes.records("start")} == {skewed.pid}, "its leases hold"
    wrong.set(-hours * HOUR)
    nodes.push({"id": "after", "payload": {}})
    wait_until(lambda: nodes.ended("after"))
    skewed.kill()
    nodes.push({"id": "taken over", "payload": {}})
    wait_until(lambda: nodes.ended("taken over"))
    assert [row[1] for row in nodes.records("end") if "taken over" in row[2]] == [right.pid]
    assert not nodes.started("tomorrow")


PRODUCER = """
import os, time
from lowkiq import Lowkiq

app = Lowkiq()
worker = app.worker(queue_name="jobs", shards_count=3)(lambda _: None)
for n in range(3):
    worker.perform_async([{"id": "a", "payload": {"n": int(os.environ["FIRST"]) + n}}])
"""


def test_producers_whose_clocks_are_wrong_push_in_the_order_of_their_pushes(nodes: Nodes, tmp_path: Path) -> None:
    """Default scores and due times are of Redis's clock."""
    environment = {"LOWKIQ_REDIS_URL": nodes.app.settings.redis_url, "LOWKIQ_NAMESPACE": "ns"}
    producer = [sys.executable, "-c", PRODUCER]
    for first, hours in (("0", 10), ("3", -10), ("6", 0)):
        with OtherClock(tmp_path, f"producer{hours}", hours * HOUR).worn():
            subprocess.run(producer, env=os.environ | environment | {"FIRST": first}, check=True, timeout=60)
    nodes.start().wait_ready()
    wait_until(nodes.is_done)
    assert [p["n"] for row in nodes.records("start") for p in row[2]["a"]] == list(range(9))
