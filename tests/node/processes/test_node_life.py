"""How a node boots, stands by, is quiet and wakes up; test_drain.py has how it ends."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from functools import partial

import pytest

from lowkiq import PushFailed
from lowkiq.job import shard_of
from tests.node.driven import burst
from tests.node.nodes import NodeProcess, Nodes, overlaps
from tests.support import RedisServer, wait_until


@pytest.fixture
def waiting(own_nodes: Nodes, own_redis_server: RedisServer) -> tuple[Nodes, NodeProcess]:
    """A node whose Redis is not there yet."""
    own_redis_server.stop()
    node = own_nodes.start()
    wait_until(lambda: node.logged("waiting_for_redis"))
    return own_nodes, node


def test_on_server_init_runs_once_in_a_node(nodes: Nodes) -> None:
    nodes.start().wait_ready()
    assert len(nodes.records("init")) == 1


def test_without_redis_a_node_waits_and_then_starts(
    waiting: tuple[Nodes, NodeProcess], own_redis_server: RedisServer
) -> None:
    nodes, node = waiting
    assert node.is_running()
    own_redis_server.start()
    node.wait_ready()
    nodes.push({"id": "a", "payload": {}})
    wait_until(lambda: nodes.ended("a"))


def test_a_node_that_waits_for_redis_can_be_stopped(waiting: tuple[Nodes, NodeProcess]) -> None:
    _, node = waiting
    node.send(signal.SIGTERM)
    assert node.wait() == 0


def refusal_with(policy: str, nodes: Nodes) -> str:
    """How a node refuses a Redis with that policy."""
    client = nodes.app.redis()
    client.config_set("maxmemory", "100mb")
    client.config_set("maxmemory-policy", policy)
    node = nodes.start()
    assert node.wait() == 3
    (refusal,) = node.logged("boot_refused")
    return str(refusal["error"])


def test_a_redis_that_evicts_is_refused(own_nodes: Nodes) -> None:
    refusal = refusal_with("allkeys-lru", own_nodes)
    assert "maxmemory-policy allkeys-lru" in refusal
    assert "noeviction" in refusal
    assert len(own_nodes.records("last_words")) == 1


def test_a_redis_that_evicts_what_expires_is_refused_unless_that_is_meant_to_be(own_nodes: Nodes) -> None:
    refusal = refusal_with("volatile-lru", own_nodes)
    assert "so limits and throttles but no jobs" in refusal
    assert "volatile_eviction=True" in refusal
    node = own_nodes.start(volatile_eviction=1).wait_ready()
    own_nodes.push({"id": "a", "payload": {}})
    wait_until(lambda: own_nodes.ended("a"))
    assert not node.logged("redis_unsuitable")


def test_a_full_redis_can_be_worked_off(own_nodes: Nodes) -> None:
    """Producers are refused, and lose nothing that was accepted; nodes must make room."""
    nodes, client = own_nodes, own_nodes.app.redis()
    nodes.push({"id": "first", "payload": {}})
    client.config_set("maxmemory", int(client.info("memory")["used_memory"]) + (3 << 20))
    accepted = 1
    with pytest.raises(PushFailed, match="push all of them again"):
        for number in range(100_000):
            accepted += nodes.push({"id": number, "payload": {"pad": "x" * 2_000}}).new
    assert nodes.metrics().length == accepted
    burst(nodes.app)  # jobs that write nothing
    assert nodes.metrics().processed == accepted


def test_a_node_runs_the_shards_that_its_queue_has_whatever_number_it_begins_with(nodes: Nodes) -> None:
    nodes.push({"id": "a", "payload": {}})
    nodes._options["shards_count"] = 4
    node = nodes.start()
    node.wait_ready()
    wait_until(lambda: nodes.ended("a"))
    assert nodes.app.queues() == {"jobs": 3}
    node.send(signal.SIGTERM)
    assert node.wait() == 0


def test_two_nodes_with_one_number_are_safe_the_second_stands_by_and_says_whom_it_waits_for(nodes: Nodes) -> None:
    first = nodes.start(node={"name": "first"}, lease_ttl=60).wait_ready()
    second = nodes.start(node={"name": "second"}, lease_ttl=60).wait_ready()
    waits = second.logged("standing_by")
    assert {entry["waits_for"] for entry in waits} == {"first"}
    assert len(waits) == 3
    nodes.push(*({"id": number, "payload": {}} for number in range(20)))
    wait_until(nodes.is_done)
    assert {row[1] for row in nodes.records("start")} == {first.pid}
    first.send(signal.SIGTERM)
    assert first.wait() == 0
    nodes.push({"id": "later", "payload": {}})
    wait_until(nodes.is_done)
    assert nodes.records("start")[-1][1] == second.pid


def test_tstp_stops_claiming_and_goes_on_running(nodes: Nodes) -> None:
    node = nodes.start().wait_ready()
    nodes.push({"id": "a", "payload": {"gate": "go"}})
    wait_until(lambda: nodes.started("a"))
    node.send(signal.SIGTSTP)
    wait_until(lambda: node.logged("quiet"))
    nodes.push({"id": "b", "payload": {}}, {"id": "c", "payload": {}}, {"id": "d", "payload": {}})
    nodes.open("go")
    wait_until(lambda: nodes.metrics().processed == 1)
    node.send(signal.SIGTERM)
    assert node.wait() == 0
    assert {id for row in nodes.records("start") for id in row[2]} == {"a"}
    assert nodes.metrics().length == 3


def test_a_node_that_is_quiet_from_its_start_takes_no_job(nodes: Nodes) -> None:
    nodes.push({"id": "a", "payload": {}}, {"id": "b", "payload": {}})
    node = nodes.start(node={"quiet": True}).wait_ready()
    wait_until(lambda: node.logged("quiet"))
    wait_until(lambda: len(nodes.held_leases()) == 3)
    node.send(signal.SIGTERM)
    assert node.wait() == 0
    assert (nodes.records("start"), nodes.metrics().length) == ([], 2)


def test_tstp_before_a_node_is_ready_counts(waiting: tuple[Nodes, NodeProcess], own_redis_server: RedisServer) -> None:
    nodes, node = waiting
    node.send(signal.SIGTSTP)
    own_redis_server.start()
    nodes.push({"id": "a", "payload": {}})
    wait_until(lambda: node.logged("quiet"))
    node.send(signal.SIGTERM)
    assert node.wait() == 0
    assert (nodes.records("start"), nodes.metrics().length) == ([], 1)


def test_an_idle_node_starts_a_pushed_job_long_before_it_would_poll(nodes: Nodes) -> None:
    nodes.start(poll_interval=3600).wait_ready()
    for number in range(5):
        nodes.push({"id": f"a{number}", "payload": {}})
        wait_until(partial(nodes.ended, f"a{number}"))


def test_an_idle_node_starts_a_job_that_becomes_due_long_before_it_would_poll(nodes: Nodes) -> None:
    nodes.start(poll_interval=3600).wait_ready()
    due = time.time() + 0.3
    nodes.push({"id": "later", "payload": {}, "perform_in": time.time() + 3600})
    nodes.push({"id": "soon", "payload": {}, "perform_in": due})
    wait_until(lambda: nodes.started("soon"))
    assert time.time() >= due
    assert not nodes.started("later")


def test_a_retry_and_an_action_wake_a_node_long_before_it_would_poll(nodes: Nodes) -> None:
    nodes.start(poll_interval=3600).wait_ready()
    nodes.push({"id": "a", "payload": {"failures": 2}}, {"id": "b", "payload": {}, "perform_in": time.time() + 3600})
    wait_until(lambda: [row[-1] for row in nodes.records("start") if "a" in row[2]] == [1, 2, 3])
    nodes.worker.actions.perform_all_jobs_now()
    wait_until(lambda: nodes.ended("b"))


def test_a_long_job_delays_no_other_thread(nodes: Nodes) -> None:
    nodes.start(poll_interval=3600).wait_ready()
    by_shard = {shard_of(id.encode(), 3): id for id in "abcdefghijklm"}
    nodes.push({"id": by_shard[0], "payload": {"gate": "never"}})
    wait_until(lambda: nodes.started(by_shard[0]))
    nodes.push({"id": by_shard[1], "payload": {}}, {"id": by_shard[2], "payload": {}})
    wait_until(lambda: nodes.ended(by_shard[1]) and nodes.ended(by_shard[2]))
    wait_until(lambda: nodes.metrics().busy == 1)  # what ended is settled a moment later


def test_outcomes_of_quick_jobs_are_settled_while_a_long_one_of_their_claim_runs(
    make_nodes: Callable[..., Nodes],
) -> None:
    nodes = make_nodes(shards_count=1)
    nodes.start().wait_ready()
    quick = [{"id": f"q{number:03}", "payload": {}, "perform_in": 1e9 + number} for number in range(60)]
    nodes.push(
        *quick, {"id": "slow", "payload": {"gate": "never"}, "perform_in": 1e9 + 100}, {"id": "z", "payload": {}}
    )
    wait_until(lambda: nodes.started("slow"))
    wait_until(lambda: nodes.metrics().processed == 61)
    assert nodes.ended("z") and not nodes.ended("slow")


def test_of_slow_jobs_a_claim_holds_one_batch(make_nodes: Callable[..., Nodes]) -> None:
    nodes = make_nodes(shards_count=1, batch_size=2, concurrency=1)
    nodes.start().wait_ready()
    nodes.push(*({"id": number, "payload": {"sleep": 0.03}} for number in range(20)))
    most = 0
    while not nodes.is_done():
        most = max(most, nodes.metrics().busy)
    assert most == 2


def test_burst_ends_with_later_retries_left(nodes: Nodes) -> None:
    nodes._options["retry_in"] = 3600
    nodes.push({"id": "a", "payload": {"failures": 1}}, {"id": "b", "payload": {"push": [{"id": "c", "payload": {}}]}})
    node = nodes.start(node={"burst": True})
    assert node.wait() == 0
    assert nodes.ended("c")
    assert [job.id for job in nodes.worker.queries.fetch(list("abc"))] == ["a"]


def test_a_log_line_names_ids_and_no_payloads(nodes: Nodes) -> None:
    nodes.push({"id": "the-id", "payload": {"failures": 1, "secret": "hunter2"}})
    node = nodes.start(node={"burst": True})
    node.wait()
    (line,) = node.logged("jobs_failed")
    assert line["ids"] == ["the-id"]
    assert "hunter2" not in json.dumps(node.output)


def test_two_bursts_at_once_share_the_work_and_both_end(nodes: Nodes) -> None:
    nodes.push(*({"id": number, "payload": {}} for number in range(200)))
    both = [nodes.start(node={"burst": True, "node_number": n, "number_of_nodes": 2}) for n in range(2)]
    assert [node.wait() for node in both] == [0, 0]
    assert nodes.is_done()
    assert overlaps(nodes.records("start", "end", "overlap")) == []
