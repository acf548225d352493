"""Jobs that are cancelled, take too long, tell their progress or keep a checkpoint, on threads and as tasks."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from lowkiq.admin.beats.health import BEAT_INTERVAL, ThreadHealth
from tests.node.nodes import Nodes
from tests.support import wait_until

BOTH = pytest.mark.parametrize("asynchronous", [False, True], ids=["thread", "task"])


@BOTH
def test_a_queued_job_is_cancelled_and_its_neighbour_is_not(
    make_nodes: Callable[..., Nodes], *, asynchronous: bool
) -> None:
    nodes = make_nodes(asynchronous=asynchronous, shards_count=1)
    nodes.push({"id": "a", "payload": {}}, {"id": "b", "payload": {}})
    assert nodes.worker.actions.cancel(["a", "none"]) == 1
    nodes.start().wait_ready()
    wait_until(nodes.is_done)
    assert (nodes.started("a"), nodes.ended("b")) == (False, True)


def test_a_task_that_is_cancelled_stops_at_once_and_what_was_pushed_since_runs(
    make_nodes: Callable[..., Nodes],
) -> None:
    nodes = make_nodes(asynchronous=True, shards_count=1)
    nodes.start().wait_ready()
    nodes.push({"id": "a", "payload": {"gate": "never"}}, {"id": "b", "payload": {"gate": "go"}})
    wait_until(lambda: nodes.started("a") and nodes.started("b"))
    nodes.push({"id": "a", "payload": {"before": 1}})
    assert nodes.worker.actions.cancel(["a"]) == 1
    nodes.push({"id": "a", "payload": {"since": 1}})
    wait_until(lambda: nodes.ended("a"))
    assert [row[2] for row in nodes.records("cancelled")] == [{"a": [{"gate": "never"}]}]
    assert [row[2]["a"] for row in nodes.records("end") if "a" in row[2]] == [[{"since": 1}]]
    nodes.open("go")
    wait_until(nodes.is_done)
    assert (nodes.metrics().failed, nodes.metrics().morgue_length) == (0, 0)


def test_others_of_a_batch_that_is_cancelled_run_again(make_nodes: Callable[..., Nodes]) -> None:
    nodes = make_nodes(asynchronous=True, shards_count=1, batch_size=3)
    nodes.push(*({"id": id, "payload": {"sleep": 1 if id == "a" else 0}} for id in "abc"))
    nodes.start().wait_ready()
    wait_until(lambda: nodes.started("a"))
    nodes.worker.actions.cancel(["a"])
    wait_until(nodes.is_done)
    assert {id for row in nodes.records("end") for id in row[2]} >= {"b", "c"}
    assert nodes.metrics().failed == 0


def test_a_thread_is_asked_to_stop_and_its_job_does_not_come_back(make_nodes: Callable[..., Nodes]) -> None:
    nodes = make_nodes(shards_count=1)
    nodes.start().wait_ready()
    nodes.push({"id": "a", "payload": {"until_cancelled": 1, "failures": 5}})
    wait_until(lambda: nodes.started("a"))
    assert nodes.worker.actions.cancel(["a"]) == 1
    wait_until(nodes.is_done)
    assert (len(nodes.records("was_cancelled")), len(nodes.records("start"))) == (1, 1)


@BOTH
def test_a_cancelled_job_does_not_come_back_when_its_node_dies(
    make_nodes: Callable[..., Nodes], *, asynchronous: bool
) -> None:
    nodes = make_nodes(asynchronous=asynchronous, shards_count=1)
    node = nodes.start(lease_ttl=1).wait_ready()
    nodes.push({"id": "a", "payload": {"stubborn": 1, "gate": "never"}}, {"id": "b", "payload": {"gate": "go"}})
    wait_until(lambda: nodes.started("a") and nodes.started("b"))
    node.send(signal.SIGSTOP)
    assert nodes.worker.actions.cancel(["a"]) == 1
    node.kill()
    nodes.open("go")
    nodes.start(lease_ttl=1)
    wait_until(nodes.is_done)
    assert [id for row in nodes.records("start") for id in row[2]].count("a") == 1
    assert nodes.ended("b")


def test_a_thread_over_its_time_goes_on_and_is_told_of(make_nodes: Callable[..., Nodes]) -> None:
    nodes = make_nodes(shards_count=1, perform_timeout=0.2)
    node = nodes.start().wait_ready()
    nodes.push({"id": "a", "payload": {"until_cancelled": 1}})
    wait_until(nodes.is_done)
    wait_until(lambda: node.logged("perform_timeout_exceeded"))
    (told,) = node.logged("perform_timeout_exceeded")
    assert (told["ids"], told["perform_timeout"]) == (["a"], 0.2)
    assert (nodes.metrics().processed, nodes.metrics().failed) == (1, 0)


@BOTH
def test_a_checkpoint_is_given_back_after_a_failure_and_a_death_and_goes_when_the_job_is_done(
    make_nodes: Callable[..., Nodes], *, asynchronous: bool
) -> None:
    nodes = make_nodes(asynchronous=asynchronous, shards_count=1, retry_in=0.01)
    node = nodes.start(lease_ttl=1).wait_ready()
    nodes.push({"id": "a", "payload": {"checkpoint": {"page": 1}, "failures": 1, "sleep": 0.01}})
    wait_until(nodes.is_done)
    nodes.push({"id": "a", "payload": {"checkpoint": {"page": 2}, "gate": "go"}})
    wait_until(lambda: nodes.is_at("go"))
    node.kill()
    nodes.open("go")
    nodes.start(lease_ttl=1)
    wait_until(nodes.is_done)
    found = [row[3] for row in nodes.records("found")]
    assert found == [None, {"page": 1}, None, {"page": 2}]
    assert nodes.app.redis().exists(f"{nodes.namespace}:{{jobs:0}}:checkpoints") == 0


@BOTH
def test_a_beat_tells_of_progress(make_nodes: Callable[..., Nodes], *, asynchronous: bool) -> None:
    nodes = make_nodes(asynchronous=asynchronous, shards_count=1)
    nodes.start().wait_ready()
    nodes.push({"id": "a", "payload": {"progress": [0.4, "page 3 of 8"], "gate": "go"}})
    wait_until(lambda: [thread.note for thread in _busy(nodes)] == ["page 3 of 8"])
    (thread,) = _busy(nodes)
    assert thread.progress == 0.4
    nodes.open("go")


@BOTH
def test_what_does_not_stop_is_an_alert(make_nodes: Callable[..., Nodes], *, asynchronous: bool) -> None:
    nodes = make_nodes(asynchronous=asynchronous, shards_count=1, perform_timeout=None if asynchronous else 1)
    nodes.start().wait_ready()
    nodes.push({"id": "a", "payload": {"stubborn": 1} if asynchronous else {"gate": "go"}})
    wait_until(lambda: nodes.started("a"))
    if asynchronous:
        nodes.worker.actions.cancel(["a"])
    wait_until(lambda: [alert.kind for alert in nodes.app.nodes().alerts if alert.kind != "Redis"] == ["runs on"])
    (running,) = nodes.app.nodes().running_on
    assert BEAT_INTERVAL < (running.thread.to_stop_seconds or 0) < running.seconds
    assert running.place == "its event loop" if asynchronous else running.place.startswith("thread lowkiq-worker-")
    nodes.open("go")


def _busy(nodes: Nodes) -> list[ThreadHealth]:
    return [running.thread for health in nodes.app.nodes().nodes for running in health.batches]
