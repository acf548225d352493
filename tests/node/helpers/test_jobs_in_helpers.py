"""Jobs in helpers: what they know, tell and get is what jobs on threads do."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from lowkiq.admin.jobs.failures import read_ledger
from tests.node.helpers.conftest import IsolatedNodes, fork_server_of, helpers_of
from tests.support import wait_until


def run(nodes: IsolatedNodes, *payloads: Any, **settings: Any) -> Any:
    """Runs one job with these payloads; its node."""
    nodes.push(*({"id": "a", "payload": payload, "score": number} for number, payload in enumerate(payloads)))
    node = nodes.start(**settings).wait_ready()
    wait_until(lambda: nodes.ended("a"))
    nodes.until_done()
    return node


def asked(nodes: IsolatedNodes) -> list[Any]:
    """What the job was told when it asked: its epoch, which is right, is left out."""
    ((_, _, queue, shard, epoch, *rest),) = nodes.records("asked")
    (found,) = nodes.app.shards("jobs", 1)
    assert nodes.app.redis().hget(f"{found.prefix}owner", "epoch") == str(epoch).encode()
    return [queue, shard, *rest]


def test_current_tells_in_a_helper_what_it_tells_on_a_thread(isolated: Callable[..., IsolatedNodes]) -> None:
    nodes = isolated()
    run(nodes, {"ask": 1})
    assert asked(nodes) == ["jobs", 0, 1, False, False, ["a"], "Quick"]


def test_a_helper_learns_that_the_lease_is_lost(isolated: Callable[..., IsolatedNodes]) -> None:
    nodes = isolated()
    nodes.push({"id": "a", "payload": {"wait_lost": 1}})
    node = nodes.start(lease_ttl=0.5).wait_ready()
    nodes.started_by("a")
    (shard,) = nodes.app.shards("jobs", 1)
    nodes.app.redis().hset(f"{shard.prefix}owner", "node", "another")
    wait_until(lambda: nodes.records("lost"))
    assert node.is_running()


def test_a_checkpoint_is_kept_before_it_returns_and_comes_back_with_the_next_try(
    isolated: Callable[..., IsolatedNodes],
) -> None:
    nodes = isolated()
    nodes.push({"id": "a", "payload": {"checkpoint": {"page": 3}, "fails": 1}})
    node = nodes.start().wait_ready()
    rows = wait_until(lambda: len(rows := nodes.records("kept")) > 1 and rows)
    assert [row[2] for row in rows[:2]] == [None, {"page": 3}]
    node.send(signal.SIGTERM)
    assert node.wait() == 0


def test_a_checkpoint_outlives_the_helper(isolated: Callable[..., IsolatedNodes]) -> None:
    nodes = isolated()
    nodes.push({"id": "b", "payload": {"checkpoint": 6}}, {"id": "b", "payload": {"exit": 2}, "score": 10**12})
    nodes.start()
    rows = wait_until(lambda: len(rows := nodes.records("kept")) > 1 and rows)
    assert [row[2] for row in rows[:2]] == [None, 6]


def test_a_checkpoint_that_is_too_large_is_refused_in_the_job(isolated: Callable[..., IsolatedNodes]) -> None:
    nodes = isolated(kind="plain")
    nodes.push({"id": "a", "payload": {"checkpoint": "x" * 200}})
    nodes.start(max_payload_bytes=150).wait_ready()
    error = nodes.until_failed()
    assert error.startswith("ValueError: the checkpoint has 202 bytes, max_payload_bytes is 150: store it elsewhere")


def test_partial_failures_of_a_batch(isolated: Callable[..., IsolatedNodes]) -> None:
    nodes = isolated(kind="plain", batch_size=10)
    nodes.push({"id": "a", "payload": {"fails": 1}}, {"id": "b", "payload": {}})
    node = nodes.start()
    assert nodes.until_failed() == "ValueError: a is to fail"
    wait_until(lambda: nodes.metrics().processed == 1)
    assert nodes.errors("b") == []
    (job,) = nodes.worker.queries.fetch(["a"])
    frames = str(job.traceback).splitlines()
    assert frames[0] == "Traceback (most recent call last):"
    assert not any("lowkiq/" in line for line in frames), "those that lead to perform are left out"
    assert frames[-1] == "ValueError: a is to fail"
    node.send(signal.SIGTERM)
    ledger = wait_until(lambda: read_ledger(nodes.app.caller, nodes.app.settings.namespace, "jobs"))
    assert {text: row.total for text, row in ledger.items()} == {"ValueError: a is to fail": 1}


@pytest.mark.parametrize("raises", [False, True])
def test_what_a_job_decides_comes_out_of_its_helper(isolated: Callable[..., IsolatedNodes], raises: bool) -> None:
    nodes = isolated(batch_size=1 if raises else 10, raises=raises)
    decisions = (("Snooze", 3000), ("RetryIn", 2000), ("Bury", "card is stolen"), ("Discard", "order is gone"))
    nodes.push(*({"id": words[0], "payload": {"decide": words}} for words in decisions))
    nodes.start()
    wait_until(lambda: nodes.metrics().busy == 0 and nodes.metrics().length == 2)
    snoozed, retried = nodes.worker.queries.fetch(["Snooze", "RetryIn"])
    assert (snoozed.retry_count, snoozed.error) == (-1, None)
    assert (retried.retry_count, retried.error) == (0, "RetryIn: to be tried again in 2000 s")
    assert 900 < snoozed.perform_in - retried.perform_in < 1100
    assert nodes.errors("Bury") == ["Bury: card is stolen"]
    assert (nodes.metrics().processed, nodes.metrics().failed) == (1, 2)


def test_jobs_start_at_their_rate_by_a_key_that_the_node_tells(isolated: Callable[..., IsolatedNodes]) -> None:
    nodes = isolated(rate=[2, 3600], kind="hooked")
    keyed = [{"id": f"{key}{number}", "payload": {"key": key}} for key in "ab" for number in range(4)]
    nodes.push(*keyed, {"id": "none", "payload": {"key": ["x"]}}, {"id": "undecodable", "payload": "undecodable"})
    nodes.start()
    wait_until(lambda: nodes.metrics().busy == 0 and len(nodes.records("end")) == 4)
    assert sorted(row[2][0][0] for row in nodes.records("start")) == ["a", "a", "b", "b"]
    wait_until(lambda: "what can be no key" in str(nodes.errors("none")))
    assert nodes.records("retry_in"), "a hook, in a helper"


def test_what_is_to_rest_comes_out_of_a_helper(isolated: Callable[..., IsolatedNodes]) -> None:
    nodes = isolated(rate=[100, 3600])
    for key in "ab":
        nodes.push({"id": key, "payload": {"key": "a", "decide": ["RateLimited", 3000]}})
        nodes.start() if key == "a" else None
        wait_until(lambda key=key: nodes.metrics().busy == 0 and nodes.metrics().scheduled == "ab".index(key) + 1)
    nodes.push({"id": "c", "payload": {"key": "c"}})
    wait_until(lambda: nodes.records("end"))
    assert [row[2] for row in nodes.records("start")] == [["a"], ["c"]]


def test_async_perform_runs_on_the_loop_of_its_helper(isolated: Callable[..., IsolatedNodes]) -> None:
    nodes = isolated(is_async=True, middlewares=True)
    node = run(nodes, {"ask": 1})
    ((_, pid, loop),) = nodes.records("loop")
    assert pid != node.pid
    assert [pid, loop] in [row[1:] for row in nodes.records("init")]
    assert [row[1:] for row in nodes.records("around", "around_async")] == [[pid, ["a"]]] * 2
    assert asked(nodes) == ["jobs", 0, 1, False, False, ["a"], "Quick"]


def test_middlewares_run_in_the_helper(isolated: Callable[..., IsolatedNodes]) -> None:
    nodes = isolated(middlewares=True)
    node = run(nodes, {})
    pids = {row[1] for row in nodes.records("around", "around_async", "start", "made")}
    assert len(pids) == 1
    assert node.pid not in pids


def test_payloads_of_many_megabytes(isolated: Callable[..., IsolatedNodes]) -> None:
    nodes = isolated()
    most = 60 << 20
    nodes.app.settings.__dict__["max_payload_bytes"] = most
    run(nodes, {"big": "x" * (50 << 20)}, max_payload_bytes=most)
    assert nodes.records("big")[0][2] == 50 << 20


def test_an_id_that_is_no_utf8(isolated: Callable[..., IsolatedNodes]) -> None:
    nodes = isolated()
    nodes.push_bytes(b"\xff\xfe", b'{"sleep": 0}')
    nodes.start()
    wait_until(lambda: nodes.metrics().processed == 1)
    nodes.until_done()


def test_a_job_in_a_helper_pushes_over_connections_of_its_own(isolated: Callable[..., IsolatedNodes]) -> None:
    nodes = isolated()
    node = run(nodes, {"push": [{"id": "b", "payload": {"push": [{"id": "c", "payload": {}}]}}]})
    wait_until(lambda: nodes.ended("c"))
    assert node.logged("jobs_failed") == []


def test_what_a_job_prints_comes_out(isolated: Callable[..., IsolatedNodes]) -> None:
    nodes = isolated()
    node = run(nodes, {"print": "from the helper"})
    assert "from the helper" in node.output


def test_each_thread_has_one_helper_which_it_keeps(isolated: Callable[..., IsolatedNodes]) -> None:
    nodes = isolated()
    node = nodes.start(threads_per_node=2).wait_ready()
    assert helpers_of(node) == []
    for number in range(20):
        nodes.push({"id": f"{number}", "payload": {}})
        wait_until(lambda number=number: nodes.ended(f"{number}"))
    nodes.until_done()
    assert len({row[1] for row in nodes.records("start")}) <= 2
    assert len(nodes.records("init")) == 1 + len(helpers_of(node))


def test_a_helper_has_a_process_group_and_signals_and_descriptors_of_its_own(
    isolated: Callable[..., IsolatedNodes],
) -> None:
    nodes = isolated()
    node = run(nodes, {"state": 1})
    (row,) = nodes.records("state")
    pid, masks, group, files, title = row[1:]
    assert group == pid
    assert title.rstrip("\0") == f"lowkiq: helper of node {node.pid}: jobs"
    ours = {signal.SIGTSTP, signal.SIGTTIN, signal.SIGCHLD}
    for name in ("SigBlk", "SigIgn", "SigCgt"):
        mask = int(masks[name], 16)
        assert not [number for number in ours if mask >> (number - 1) & 1], name
    # Its channel, and its own connection to Redis.
    assert sum(name.startswith("socket:") for name in files) == 2, files
    (helper,) = helpers_of(node)
    assert helper.pid == pid
    assert os.getpgid(fork_server_of(node).pid) == fork_server_of(node).pid
    node.send(signal.SIGTERM)
    assert node.wait() == 0


def test_a_node_without_isolated_workers_has_a_fork_server_for_suspects_and_no_helper(nodes: Any) -> None:
    node = nodes.start().wait_ready()
    (server,) = psutil.Process(node.pid).children()
    assert server.children() == []


@pytest.mark.timeout(300)
def test_a_thousand_batches_leave_nothing_behind(isolated: Callable[..., IsolatedNodes]) -> None:
    """Neither do helpers that die in between: descriptors and processes are as many as before."""
    nodes = isolated(kind="quick", perform_timeout=30)

    def work(first: int, count: int) -> tuple[int, int, int]:
        deaths: list[dict[str, Any]] = [{"id": f"d{first + n}", "payload": {"exit": 1}} for n in range(10)]
        nodes.push(*({"id": f"{n}", "payload": {}} for n in range(first, first + count)), *deaths)
        wait_until(lambda: nodes.metrics().processed >= first + count)
        nodes.worker.actions.delete([job["id"] for job in deaths])
        nodes.until_done()
        wait_until(lambda: len(helpers_of(node)) <= 2)
        processes = [psutil.Process(node.pid), fork_server_of(node)]
        wait_until(lambda: len(processes[1].children()) <= 2)
        return processes[0].num_fds(), processes[1].num_fds() - len(helpers_of(node)), processes[0].num_threads()

    node = nodes.start(threads_per_node=2).wait_ready()
    before = work(0, 200)
    after = work(200, 1_000)
    assert after[0] <= before[0] + 4, (before, after)
    assert after[1:] == before[1:]


def test_a_beat_names_the_process_that_performs_a_job(isolated: Callable[..., IsolatedNodes]) -> None:
    nodes = isolated()
    nodes.push({"id": "a", "payload": {"gate": "go"}})
    nodes.start().wait_ready()
    pid = nodes.started_by("a")
    wait_until(lambda: [row.thread.pid for node in nodes.app.nodes().nodes for row in node.batches] == [pid])
    nodes.open("go")
    nodes.until_done()


def test_helpers_go_by_live_settings(isolated: Callable[..., IsolatedNodes]) -> None:
    nodes = isolated()
    node = nodes.start().wait_ready()
    nodes.push({"id": "a", "payload": {}})
    wait_until(lambda: nodes.metrics().processed == 1)
    nodes.worker.actions.set(max_retry_count=0)
    wait_until(lambda: node.logged("settings_changed"))
    nodes.push({"id": "b", "payload": {"fails": 1}})
    wait_until(lambda: nodes.metrics().morgue_length == 1)
    assert nodes.metrics().failed == 1
    nodes.worker.actions.set(when_exhausted="discard")
    wait_until(lambda: len(node.logged("settings_changed")) == 2)
    nodes.push({"id": "c", "payload": {"fails": 1}})
    wait_until(lambda: nodes.metrics().failed == 2)
    assert (nodes.metrics().morgue_length, nodes.metrics().length) == (1, 0)
