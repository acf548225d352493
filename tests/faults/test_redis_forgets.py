"""Redis loses data, connections, room or scripts under nodes at work: what is lost is lost, and all goes on."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from lowkiq import Lowkiq, PushFailed
from tests.node.nodes import Nodes
from tests.support import RedisServer, running_redis, wait_until


@pytest.fixture
def nodes(tmp_path: Path, own_redis_server: RedisServer) -> Iterator[Nodes]:
    with Nodes(tmp_path, own_redis_server, "ns") as nodes:
        yield nodes


def knows_queue(nodes: Nodes) -> bool:
    return bool(nodes.app.redis().exists("ns:queues"))


@pytest.mark.parametrize("how", ["FLUSHALL", "restarted empty"])
def test_when_redis_has_lost_everything_new_jobs_run_and_are_seen(tmp_path: Path, how: str) -> None:
    """Leases are taken again, and the queue is known again, so that metrics, the web view and fosters see it."""
    with running_redis() as server, Nodes(tmp_path, server, "ns") as nodes:
        both = [nodes.start(lease_ttl=1, poll_interval=0.2).wait_ready() for _ in range(2)]
        nodes.push(*({"id": f"before-{n}", "payload": {"sleep": 0.02}} for n in range(100)))
        wait_until(lambda: nodes.recorded() > 10)
        if how == "FLUSHALL":
            nodes.app.redis().flushall()
        else:
            server.kill()
            server.start()
        wait_until(lambda: push_succeeds(nodes, "after"))
        wait_until(lambda: nodes.ended("after"))
        wait_until(lambda: knows_queue(nodes))
        wait_until(nodes.is_done)
        assert all(node.is_running() for node in both)
        nodes.push({"id": "later", "payload": {}})
        wait_until(lambda: nodes.ended("later"))


def push_succeeds(nodes: Nodes, id: str) -> bool:
    with contextlib.suppress(PushFailed):
        return bool(nodes.push({"id": id, "payload": {}}))
    return False


def test_a_newer_layout_that_came_in_meanwhile_is_told_of_and_changes_nothing(
    nodes: Nodes, own_redis_server: RedisServer
) -> None:
    node = nodes.start(lease_ttl=1).wait_ready()
    nodes.push({"id": "before", "payload": {}})  # this producer does not ask again
    nodes.app.redis().hset("ns:queues", "jobs", "4:7")
    wait_until(lambda: node.logged("queue_refused"))
    (line,) = node.logged("queue_refused")
    assert "queue jobs has layout 4, this Lowkiq" in line["error"]
    assert nodes.app.redis().hget("ns:queues", "jobs") == b"4:7"
    nodes.push({"id": "a", "payload": {}})
    wait_until(lambda: nodes.ended("a"))


def test_an_evicting_policy_that_is_set_later_is_told_of_once(nodes: Nodes) -> None:
    node = nodes.start().wait_ready()
    client = nodes.app.redis()
    client.config_set("maxmemory", 1 << 30)
    client.config_set("maxmemory-policy", "allkeys-lru")
    wait_until(lambda: node.logged("redis_unsuitable"))
    beat_at = beat(client)
    wait_until(lambda: beat(client) > beat_at + 1)
    (line,) = node.logged("redis_unsuitable")
    assert "maxmemory-policy allkeys-lru: when memory is full it would throw jobs away" in line["error"]
    nodes.push({"id": "a", "payload": {}})
    wait_until(lambda: nodes.ended("a"))
    refused = nodes.start()
    assert refused.wait() == 3, "a node that boots refuses it"
    assert "allkeys-lru" in refused.logged("boot_refused")[0]["error"]


def beat(client: redis.Redis) -> float:
    """Time at which the only node beat last."""
    (beat,) = client.zrange("ns:nodes", 0, -1, withscores=True)
    return float(beat[1])


def test_when_memory_is_full_nodes_work_the_queue_off_and_producers_are_told(nodes: Nodes) -> None:
    client = nodes.app.redis()
    node = nodes.start().wait_ready()
    nodes.push(*({"id": n, "payload": {"sleep": 0.02}} for n in range(200)))
    wait_until(lambda: nodes.recorded() > 5)
    client.config_set("maxmemory", 1)
    with pytest.raises(PushFailed, match="memory is full: raise its maxmemory, or let nodes work the queues off"):
        nodes.push({"id": "refused", "payload": {}})
    # What jobs write themselves fails, and they are tried again: that is theirs, but the queue never stands still.
    wait_until(lambda: nodes.metrics().failed > 200)
    assert node.is_running()
    client.config_set("maxmemory", 0)
    wait_until(nodes.is_done)
    assert nodes.metrics().morgue_length == 0
    assert {id for row in nodes.records("end") for id in row[2]} == set(map(str, range(200)))


@pytest.fixture
def small_disk() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="lowkiq-test-"))
    mounted = os.geteuid() == 0 and shutil.which("mount") is not None
    if mounted:
        command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(directory)]
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    if not mounted:
        pytest.skip("only root can mount a small disk, and not in every container")
    yield directory
    subprocess.run(["umount", "-l", str(directory)], check=True)
    directory.rmdir()


def test_a_disk_that_is_full_stops_writes_and_nothing_else(tmp_path: Path, small_disk: Path) -> None:
    """MISCONF of the append-only file; with appendfsync always Redis would end instead."""
    server = RedisServer(small_disk, "--appendonly", "yes", "--appendfsync", "everysec")
    server.start()
    with Nodes(tmp_path, server, "ns") as nodes:
        node = nodes.start(poll_interval=0.2, lease_ttl=2).wait_ready()
        nodes.push({"id": "before", "payload": {}})
        wait_until(nodes.is_done)
        ballast = small_disk / "ballast"
        fill(ballast)
        error = wait_until(lambda: refusal(nodes))
        assert "can't write to its disk" in error
        wait_until(lambda: any("its disk" in (line["advice"] or "") for line in node.logged("redis_trouble")))
        ballast.unlink()
        wait_until(lambda: push_succeeds(nodes, "after"))
        wait_until(lambda: nodes.ended("after"))
        wait_until(lambda: node.logged("redis_back"))
        assert node.is_running()
        node.end()
    server.stop()


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4_096)


def refusal(nodes: Nodes) -> str:
    """Error with which Redis refuses a push, once it has noticed."""
    try:
        nodes.push({"id": "during", "payload": {"x": "y" * 5_000}})
    except PushFailed as error:
        return str(error)
    return ""


def test_connections_that_are_killed_again_and_again_cost_nothing(nodes: Nodes, own_redis_server: RedisServer) -> None:
    node = nodes.start(poll_interval=0.2).wait_ready()
    nodes.push(*({"id": n, "payload": {"sleep": 0.005}} for n in range(300)))
    with own_redis_server.client() as admin:
        for _ in range(30):
            before = nodes.recorded()
            for kind in ("normal", "pubsub"):
                admin.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
            wait_until(lambda before=before: nodes.recorded() > before or nodes.is_done())
    wait_until(nodes.is_done)
    assert node.is_running()
    assert nodes.metrics().morgue_length == 0
    assert {id for row in nodes.records("end") for id in row[2]} == set(map(str, range(300)))


def test_scripts_that_are_flushed_without_a_pause_fail_no_push(app: Lowkiq) -> None:
    worker = app.worker(queue_name="q")(lambda _: None)
    is_over = threading.Event()

    def flush() -> None:
        with contextlib.closing(
            app.settings.redis() if app.settings.redis else redis.from_url(app.settings.redis_url)
        ) as client:
            while not is_over.wait(0.01):
                client.script_flush()

    flushing = threading.Thread(target=flush)
    flushing.start()
    try:
        for n in range(200):
            worker.perform_async([{"id": f"{n}-{m}"} for m in range(20)])
    finally:
        is_over.set()
        flushing.join()
    assert app.metrics()["q"].length == 4_000
