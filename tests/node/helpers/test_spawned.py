"""Helpers that begin anew, with isolation="spawn": they share nothing with their node, and else are as others."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from lowkiq.environment import ExitCode
from tests.node.helpers.conftest import IsolatedNodes, all_gone, fork_server_of, helpers_of, processes_of
from tests.node.helpers.test_helper_deaths import (  # noqa: F401 (they run here with helpers that begin anew)
    test_a_helper_that_cannot_begin_fails_its_batch,
    test_a_payload_that_kills_whoever_loads_it_is_retried_and_buried_by_the_usual_rule,
    test_an_application_whose_sockets_time_out_ends_no_process_of_ours,
    test_hooks_of_a_batch_that_killed_its_helper_are_called_in_another,
    test_sys_exit_ends_the_helper_and_not_the_node,
)
from tests.node.helpers.test_jobs_in_helpers import (  # noqa: F401
    test_a_checkpoint_is_kept_before_it_returns_and_comes_back_with_the_next_try,
    test_async_perform_runs_on_the_loop_of_its_helper,
    test_each_thread_has_one_helper_which_it_keeps,
)
from tests.node.helpers.test_stops import (  # noqa: F401
    test_a_cancelled_job_is_killed_and_its_neighbours_run_again_as_they_were,
    test_a_drain_kills_at_its_deadline_and_the_job_goes_back_as_it_was,
    test_a_drain_lets_jobs_end,
    test_what_takes_longer_than_perform_timeout_is_killed_with_all_that_it_has_started,
)
from tests.support import wait_until


@pytest.fixture
def isolated(isolated: Callable[..., IsolatedNodes]) -> Callable[..., IsolatedNodes]:
    return lambda **options: isolated(**{"isolation": "spawn"} | options)


@pytest.mark.parametrize(("isolation", "marks"), [("spawn", []), ("process", ["of the node"])])
def test_it_shares_no_memory_with_its_node(isolated: Any, isolation: str, marks: list[str]) -> None:
    nodes = isolated(isolation=isolation)
    nodes.push(
        *({"id": "a", "payload": {"marks": n}, "score": n} for n in range(3)), {"id": "b", "payload": {"marks": 3}}
    )
    node = nodes.start(threads_per_node=1).wait_ready()
    nodes.until_done()
    assert [row[2:] for row in nodes.records("marks")] == [[marks, fork_server_of(node).pid, id] for id in "aaab"]
    assert len({row[1] for row in nodes.records("marks")}) == 1, "it is kept"


def test_its_jobs_run_in_order_though_it_dies(isolated: Callable[..., IsolatedNodes]) -> None:
    nodes = isolated()
    nodes.push({"id": "a", "payload": {"gate": "go"}})
    node = nodes.start().wait_ready()
    first = nodes.started_by()
    nodes.push({"id": "a", "payload": {"marks": 2}})
    os.kill(first, signal.SIGKILL)
    assert nodes.until_failed() == "ProcessDied: killed by SIGKILL"
    nodes.open("go")
    nodes.until_done()
    assert [row[0] for row in nodes.records("start", "marks", "end")] == ["start", "start", "marks", "end"]
    assert node.is_running()


def test_it_goes_with_a_node_that_is_killed(isolated: Callable[..., IsolatedNodes]) -> None:
    nodes = isolated()
    nodes.push({"id": "a", "payload": {"children": 1, "gate": "never"}})
    node = nodes.start().wait_ready()
    nodes.started_by()
    wait_until(lambda: nodes.is_at("never"))
    processes = processes_of(node)
    assert len(helpers_of(node)) == 1
    node.kill()
    wait_until(lambda: all_gone(processes))


def test_an_application_that_can_t_be_imported_once_more_fails_its_jobs(isolated: Callable[..., IsolatedNodes]) -> None:
    nodes = isolated(import_fails=True)
    nodes.push({"id": "a", "payload": {}})
    node = nodes.start().wait_ready()
    assert "it could not begin: import of" in (told := nodes.until_failed())
    assert "ImportError: no such library" in told
    assert node.is_running()


def test_a_node_that_does_not_know_where_its_application_comes_from_is_refused(nodes: Any) -> None:
    nodes._options["isolation"] = "spawn"
    node = nodes.start()
    assert node.wait() == ExitCode.BOOT
    assert "lowkiq -r MODULE" in node.logged("boot_refused")[0]["error"]
