"""How a node drains and stops, and what becomes of its jobs."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lowkiq.process.signals import ONE_PRESS
from tests.node.nodes import Nodes
from tests.node.script import SCRIPT
from tests.support import RedisServer, wait_until


def test_an_idle_node_whose_redis_is_away_leaves_nothing_behind_and_says_so_once(
    own_nodes: Nodes, own_redis_server: RedisServer
) -> None:
    node = own_nodes.start(drain_timeout=1).wait_ready()
    wait_until(lambda: len(own_nodes.held_leases()) == 3)
    own_redis_server.stop()
    node.send(signal.SIGTERM)
    assert node.wait() == 0
    assert [entry["shards"] for entry in node.logged("not_released")] == [3]
    assert (len(node.logged("release_failed")) <= 1, node.logged("abandoned")) == (True, [])
    own_redis_server.start()


@pytest.mark.parametrize("how", ["down", "silent"])
def test_an_idle_node_whose_redis_is_away_does_not_wait_for_it(
    own_nodes: Nodes, own_redis_server: RedisServer, how: str
) -> None:
    """Its leases run out by themselves, and jobs it has none."""
    node = own_nodes.start(drain_timeout=3600).wait_ready()
    wait_until(lambda: len(own_nodes.held_leases()) == 3)
    if how == "down":
        own_redis_server.stop()
    else:
        own_redis_server.pause()
    node.send(signal.SIGTERM)
    assert node.wait() == 0
    if how == "silent":
        own_redis_server.resume()


class TellStarts(Nodes):
    """Their jobs do not wait for Redis at their end."""

    script = SCRIPT.replace('record("end"', '(lambda *_: None)("end"')


def test_a_node_whose_job_is_done_waits_to_tell_redis(tmp_path: Path, own_redis_server: RedisServer) -> None:
    with TellStarts(tmp_path, own_redis_server, "ns") as nodes:
        node = nodes.start(drain_timeout=3600).wait_ready()
        nodes.push({"id": "a", "payload": {"sleep": 0.5}})
        wait_until(lambda: nodes.started("a"))
        own_redis_server.pause()
        node.send(signal.SIGTERM)
        # Of its threads the first that meets the outage tells of it.
        wait_until(lambda: node.logged("release_failed") or node.logged("redis_trouble"))
        own_redis_server.resume()
        assert node.wait() == 0
        assert (nodes.metrics().processed, nodes.crashes()) == (1, 0)


def test_term_lets_the_running_job_finish_and_returns_the_others_without_counting_a_crash(one_shard: Nodes) -> None:
    nodes = one_shard
    node = nodes.start().wait_ready()
    nodes.push({"id": "a", "payload": {"gate": "go"}}, {"id": "b", "payload": {}}, {"id": "c", "payload": {}})
    wait_until(lambda: nodes.started("a"))
    node.send(signal.SIGTERM)
    wait_until(lambda: node.logged("draining"))
    assert node.is_running()
    nodes.open("go")
    assert node.wait() == 0
    assert (nodes.ended("a"), nodes.started("b"), nodes.started("c")) == (True, False, False)
    assert (nodes.metrics().length, nodes.metrics().busy, nodes.metrics().processed) == (2, 0, 1)
    assert (nodes.crashes(), nodes.held_leases()) == (0, [])


def test_term_returns_the_jobs_of_its_claim_that_have_not_started(one_shard: Nodes) -> None:
    """They are claimed with the one that runs, since those before it were quick."""
    nodes = one_shard
    node = nodes.start().wait_ready()
    jobs = [{"id": f"q{number:03}", "payload": {}, "perform_in": 1e9 + number} for number in range(40)]
    jobs += [{"id": "slow", "payload": {"gate": "go"}, "perform_in": 1e9 + 100}]
    jobs += [{"id": f"z{number:03}", "payload": {}, "perform_in": 1e9 + 200 + number} for number in range(20)]
    nodes.push(*jobs)
    wait_until(lambda: nodes.started("slow"))
    node.send(signal.SIGTERM)
    wait_until(lambda: node.logged("draining"))
    wait_until(lambda: nodes.metrics().busy == 1)
    nodes.open("go")
    assert node.wait() == 0
    assert [id for id in (f"z{number:03}" for number in range(20)) if nodes.started(id)] == []
    assert (nodes.metrics().length, nodes.metrics().busy, nodes.metrics().processed) == (20, 0, 41)
    assert (nodes.crashes(), nodes.held_leases()) == (0, [])


def test_a_job_longer_than_the_drain_timeout_is_abandoned_and_restored_without_counting_a_crash(nodes: Nodes) -> None:
    node = nodes.start(drain_timeout=0.2, lease_ttl=1).wait_ready()
    nodes.push({"id": "a", "payload": {"gate": "go"}})
    wait_until(lambda: nodes.started("a"))
    node.send(signal.SIGTERM)
    assert node.wait() == 5
    assert nodes.metrics().busy == 1
    nodes.open("go")
    nodes.start(lease_ttl=1)
    wait_until(nodes.is_done)
    assert nodes.crashes() == 0
    assert nodes.metrics().processed == 1
    assert [attempt for _, _, _, _, _, attempt in nodes.records("start")] == [1, 1]


def test_a_second_int_does_not_wait_for_jobs(nodes: Nodes) -> None:
    node = nodes.start().wait_ready()
    nodes.push({"id": "a", "payload": {"gate": "never"}})
    wait_until(lambda: nodes.started("a"))
    node.send(signal.SIGINT)
    wait_until(lambda: node.logged("draining"))
    time.sleep(ONE_PRESS)
    node.send(signal.SIGINT)
    assert node.wait() == 130
    assert nodes.metrics().busy == 1


def test_a_base_exception_drains_the_node_reaches_last_words_and_keeps_the_job(
    make_nodes: Callable[..., Nodes],
) -> None:
    nodes = make_nodes(retry_in=60)  # or it might run again before the node ends
    node = nodes.start().wait_ready()
    nodes.push({"id": "a", "payload": {"exit": 7}})
    assert node.wait() == 1
    assert [row[2:] for row in nodes.records("last_words")] == [["SystemExit", "7"]]
    (job,) = nodes.worker.queries.fetch(["a"])
    assert (job.retry_count, job.error) == (0, "SystemExit: 7")
    assert (nodes.metrics().busy, nodes.crashes(), nodes.held_leases()) == (0, 0, [])
