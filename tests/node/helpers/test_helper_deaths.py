"""Deaths of helpers, which are failures of their batches and no more."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from lowkiq.node.helpers.frames import BadPayload, Ended, Failed, Keep, Slept
from tests.node.helpers.conftest import IsolatedNodes, all_gone, helpers_of, is_alive
from tests.support import wait_until


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        ({"null": 1}, "killed by SIGSEGV"),
        ({"signal": signal.SIGKILL}, "killed by SIGKILL"),
        ({"exit": 3}, "exited with status 3"),
        ({"exit": 0}, "exited with status 0"),
    ],
)
def test_a_helper_s_death_fails_its_batch_and_leaves_its_node_alone(
    isolated: Callable[..., IsolatedNodes], payload: Any, why: str
) -> None:
    nodes = isolated(kind="plain")
    node = nodes.start().wait_ready()
    nodes.push({"id": "a", "payload": payload})
    assert nodes.until_failed() == f"ProcessDied: {why}"
    (job,) = nodes.worker.queries.fetch(["a"])
    assert job.retry_count == 0
    nodes.push({"id": "b", "payload": {}})
    wait_until(lambda: nodes.ended("b"))
    node.send(signal.SIGTERM)
    assert node.wait() == 0
    assert nodes.crashes() == 0


def test_hooks_of_a_batch_that_killed_its_helper_are_called_in_another(isolated: Callable[..., IsolatedNodes]) -> None:
    nodes = isolated(kind="hooked", max_retry_count=1)
    node = nodes.start().wait_ready()
    nodes.push({"id": "a", "payload": {"exit": 3, "text": "é"}})
    (row,) = wait_until(lambda: nodes.records("exhausted"))
    assert row[2] == [["a", [{"exit": 3, "text": "é"}], "ProcessDied: exited with status 3"]]
    starts, retries = nodes.records("start"), nodes.records("retry_in")
    assert len(starts) == 2
    assert [row[2] for row in retries] == [0]
    assert node.pid not in {row[1] for row in nodes.records("exhausted", "retry_in", "start", "made")}
    wait_until(lambda: nodes.metrics().morgue_length == 1)


def test_a_payload_that_kills_whoever_loads_it_is_retried_and_buried_by_the_usual_rule(
    isolated: Callable[..., IsolatedNodes],
) -> None:
    """The hooks can't be called then: that would take the payload."""
    nodes = isolated(kind="hooked", loads=True, max_retry_count=0)
    node = nodes.start().wait_ready()
    nodes.push({"id": "a", "payload": "deadly"}, {"id": "b", "payload": {}})
    wait_until(lambda: nodes.metrics().morgue_length == 1)
    assert nodes.worker.queries.morgue_fetch(["a"])[0].error == "ProcessDied: killed by SIGBUS"
    nodes.until_done()
    assert nodes.ended("b")
    assert node.logged("hooks_not_called")[0]["ids"] == ["a"]
    assert nodes.records("exhausted") == []


def test_what_cannot_be_loaded_is_buried_raw_and_stops_no_neighbour(isolated: Callable[..., IsolatedNodes]) -> None:
    nodes = isolated(loads=True, batch_size=10)
    nodes.push({"id": "a", "payload": "undecodable"}, {"id": "b", "payload": {}}, {"id": "c", "payload": {}})
    nodes.start()
    nodes.until_done()
    assert nodes.ended("b")
    assert nodes.ended("c")
    assert not nodes.started("a")
    (buried,) = nodes.worker.queries.morgue_fetch(["a"])
    assert buried.payloads == ["undecodable"]
    assert buried.error == "load_payload can't decode this payload: ValueError: no such format"


def test_a_helper_that_dies_with_nothing_to_do_fails_no_job(isolated: Callable[..., IsolatedNodes]) -> None:
    nodes = isolated()
    node = nodes.start(threads_per_node=1).wait_ready()
    nodes.push({"id": "a", "payload": {}})
    wait_until(lambda: nodes.ended("a"))
    nodes.until_done()
    (helper,) = helpers_of(node)
    helper.kill()
    wait_until(lambda: not is_alive(helper))
    nodes.push({"id": "b", "payload": {}})
    wait_until(lambda: nodes.ended("b"))
    assert node.logged("idle_helper_died")[0]["reason"] == "killed by SIGKILL"
    assert node.logged("jobs_failed") == []


def framed(frame: Any) -> str:
    """The bytes of a frame, in hex."""
    data = msgspec.msgpack.encode(frame)
    return (len(data).to_bytes(8, "little") + data).hex()


@pytest.mark.parametrize(
    "rubbish",
    [
        "ff" * 8,  # a frame of 16 exbibytes
        "0400000000000000deadbeef",
        framed(Ended([Failed(7, 0, 0.0, "of no job")], [], [])),
        framed(Ended([Failed(0, 0, float("nan"), "never again")], [], [])),
        framed(Ended([], [], [], [Slept(0, float("nan"))])),
        framed(Ended([Failed(0, 0, 1.0, "and")], [], [], [Slept(0, 1.0)])),
        framed(Ended([], [], [BadPayload(0, 1, "of no payload")])),
        framed(Keep(1, b"of no job")),
    ],
)
def test_a_helper_that_sends_rubbish_is_killed_which_is_a_failure(
    isolated: Callable[..., IsolatedNodes], rubbish: str
) -> None:
    nodes = isolated(kind="plain")
    node = nodes.start().wait_ready()
    nodes.push({"id": "a", "payload": {"rubbish": rubbish}})
    error = nodes.until_failed()
    assert error.startswith("ProcessDied: killed, as it sent rubbish: "), error
    assert node.is_running()
    wait_until(lambda: helpers_of(node) == [])


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ("init_fails", "it could not begin: on_server_init: OSError: no database"),
        ("cannot_be_made", "it could not begin: worker Jobs: RuntimeError: no model"),
    ],
)
def test_a_helper_that_cannot_begin_fails_its_batch(
    isolated: Callable[..., IsolatedNodes], option: str, why: str
) -> None:
    nodes = isolated(kind="plain", **{option: True})
    node = nodes.start().wait_ready()
    nodes.push({"id": "a", "payload": {}})
    assert nodes.until_failed() == f"ProcessDied: {why}"
    assert node.is_running()
    wait_until(lambda: helpers_of(node) == [])


def test_sys_exit_ends_the_helper_and_not_the_node(isolated: Callable[..., IsolatedNodes]) -> None:
    nodes = isolated(kind="plain")
    node = nodes.start(threads_per_node=1).wait_ready()
    nodes.push({"id": "a", "payload": {"sys_exit": 7}})
    assert nodes.until_failed() == "SystemExit: 7"
    nodes.push({"id": "b", "payload": {}})
    wait_until(lambda: nodes.ended("b"))
    assert nodes.started_by("a") != nodes.started_by("b")
    assert node.logged("idle_helper_died") == []
    assert node.is_running()


def test_a_child_that_a_job_forks_and_that_comes_back_speaks_for_nobody(isolated: Callable[..., IsolatedNodes]) -> None:
    nodes = isolated()
    node = nodes.start(threads_per_node=1).wait_ready()
    for number in range(3):
        nodes.push({"id": f"{number}", "payload": {"fork": 1}})
        wait_until(lambda number=number: sum(f"{number}" in row[2] for row in nodes.records("end")) == 2)
    nodes.until_done()
    assert len({row[1] for row in nodes.records("made")}) == 1
    (helper,) = helpers_of(node)
    wait_until(lambda: all_gone(helper.children()))


def test_an_application_whose_sockets_time_out_ends_no_process_of_ours(isolated: Callable[..., IsolatedNodes]) -> None:
    """What is between a node and its helpers waits as long as it has to, whatever jobs have set meanwhile."""
    nodes = isolated(default_timeout=0.2)
    nodes.push({"id": "a", "payload": {"sleep": 1}})
    node = nodes.start(threads_per_node=1).wait_ready()
    first = nodes.started_by("a")
    nodes.until_done()
    time.sleep(0.5)  # the helper waits for longer than that
    nodes.push({"id": "b", "payload": {}})
    assert nodes.started_by("b") == first
    nodes.until_done()
    assert not node.logged("jobs_failed")
    os.kill(first, signal.SIGKILL)
    nodes.push({"id": "c", "payload": {}})
    nodes.until_done()
    assert nodes.started_by("c") != first
    node.send(signal.SIGTERM)
    assert node.wait() == 0
