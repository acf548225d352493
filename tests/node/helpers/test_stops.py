"""Batches in helpers that are stopped: they take too long, are cancelled, or their node ends."""

from __future__ import annotations

import signal
from collections.abc import Callable

from tests.node.helpers.conftest import IsolatedNodes, all_gone, helpers_of, processes_of
from tests.support import wait_until


def test_what_takes_longer_than_perform_timeout_is_killed_with_all_that_it_has_started(
    isolated: Callable[..., IsolatedNodes],
) -> None:
    nodes = isolated(kind="plain", perform_timeout=0.5)
    node = nodes.start().wait_ready()
    nodes.push({"id": "a", "payload": {"children": 1, "sleep": 600}})
    children = nodes.children()  # one of them in a session of its own
    (helper,) = helpers_of(node)
    wait_until(lambda: all_gone([helper, *children]))
    assert nodes.until_failed() == "PerformTimeout: took longer than 0.5 s"
    nodes.push({"id": "b", "payload": {}})
    wait_until(lambda: nodes.ended("b"))
    assert not nodes.ended("a")


def test_a_helper_that_never_stops_talking_is_killed_in_time(isolated: Callable[..., IsolatedNodes]) -> None:
    nodes = isolated(kind="plain", perform_timeout=0.5)
    nodes.start()
    nodes.push({"id": "a", "payload": {"chatter": 1}})
    assert nodes.until_failed() == "PerformTimeout: took longer than 0.5 s"


def test_the_time_of_on_server_init_and_of_the_fork_counts_for_no_job(isolated: Callable[..., IsolatedNodes]) -> None:
    nodes = isolated(perform_timeout=0.5, slow_init=1)
    nodes.start()
    nodes.push({"id": "a", "payload": {}})
    wait_until(lambda: nodes.ended("a"))
    assert [row[0] for row in nodes.records("start", "end")] == ["start", "end"]


def test_a_cancelled_job_is_killed_and_its_neighbours_run_again_as_they_were(
    isolated: Callable[..., IsolatedNodes],
) -> None:
    nodes = isolated(kind="plain", batch_size=10)
    nodes.push({"id": "a", "payload": {"gate": "never"}}, {"id": "b", "payload": {}})
    node = nodes.start().wait_ready()
    wait_until(lambda: nodes.is_at("never"))
    assert nodes.worker.actions.cancel(["a"]) == 1
    wait_until(lambda: nodes.ended("b"))
    nodes.until_done()
    assert nodes.metrics().failed == 0
    assert sum("a" in row[2] for row in nodes.records("start")) == 1
    assert [row[2] for row in nodes.records("end")] == [["b"]]
    assert node.logged("jobs_cancelled")[0]["ids"] == ["a"]


def test_a_drain_lets_jobs_end(isolated: Callable[..., IsolatedNodes]) -> None:
    nodes = isolated()
    node = nodes.start().wait_ready()
    nodes.push({"id": "a", "payload": {"gate": "ends"}})
    wait_until(lambda: nodes.is_at("ends"))
    everything = processes_of(node)
    node.send(signal.SIGTERM)
    wait_until(lambda: node.logged("draining"))
    nodes.open("ends")
    assert node.wait() == 0
    assert nodes.ended("a")
    assert nodes.is_done()
    wait_until(lambda: all_gone(everything))


def test_a_drain_kills_at_its_deadline_and_the_job_goes_back_as_it_was(isolated: Callable[..., IsolatedNodes]) -> None:
    nodes = isolated()
    node = nodes.start(drain_timeout=0.2).wait_ready()
    nodes.push({"id": "a", "payload": {"children": 1, "gate": "never"}})
    wait_until(lambda: nodes.is_at("never"))
    everything = [*processes_of(node), *nodes.children()]
    node.send(signal.SIGTERM)
    assert node.wait() == 0
    wait_until(lambda: all_gone(everything))
    (job,) = nodes.worker.queries.fetch(["a"])
    assert (job.retry_count, job.error) == (-1, None)
    assert nodes.crashes() == 0
    assert nodes.held_leases() == []
