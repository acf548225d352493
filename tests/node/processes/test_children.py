"""Processes that jobs start: they are not nodes, and signals mean to them what they mean to any process."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.harness import Supervised
from tests.node.nodes import Nodes
from tests.support import RedisServer, wait_until

#: What the jobs of a supervised node do: a forked child and a program tell which signals they ignore and catch. Then
#: the streams of their process are closed, for whoever prints there next.
APP = """
import os, subprocess, sys
from pathlib import Path
from lowkiq import Lowkiq

app = Lowkiq(threads_per_node=1)

@app.worker(queue_name="jobs", shards_count=1, isolation=os.environ["ISOLATION"])
def tell(payloads_by_id):
    if "print" in payloads_by_id:
        print("heard")
        print("heard, too", file=sys.stderr)
        Path("printed").touch()
        return
    if os.fork() == 0:
        Path("forked").write_text(Path("/proc/self/status").read_text())
        os._exit(0)
    os.wait()
    Path("run").write_text(subprocess.run(["cat", "/proc/self/status"], capture_output=True, text=True).stdout)
    sys.stdout.close()
    sys.stderr.close()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1])
def test_a_signal_ends_a_child_that_a_job_has_forked(nodes: Nodes, number: signal.Signals) -> None:
    node = nodes.start().wait_ready()
    nodes.push({"id": "a", "payload": {"fork": number}})
    (forked,) = wait_until(lambda: nodes.records("forked"))
    assert forked[2] == -number
    node.send(signal.SIGTERM)
    assert node.wait() == 0


@pytest.mark.parametrize("isolation", ["thread", "process", "spawn"])
def test_children_neither_ignore_nor_catch_what_the_node_does(
    tmp_path: Path, redis_server: RedisServer, nodes: Nodes, isolation: str
) -> None:
    (tmp_path / "shop.py").write_text(APP)
    environment = {"REDIS_URL": redis_server.url, "LOWKIQ_NAMESPACE": nodes.namespace, "ISOLATION": isolation}
    with Supervised.main(tmp_path, "-r", "shop", **environment).ready(1) as supervisor:
        worker = nodes.app.worker(queue_name="other", shards_count=1)(lambda _: None)
        worker.queue_name = "jobs"
        worker.perform_async([{"id": "a"}])
        wait_until(lambda: (tmp_path / "run").exists() and (tmp_path / "run").read_text())
        worker.perform_async([{"id": "print"}])
        wait_until((tmp_path / "printed").exists)
        supervisor.end()
    assert "heard, too" in supervisor.log_path.read_text()
    ours = {signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTSTP, signal.SIGTTIN}
    for kind in ("forked", "run"):
        status = (tmp_path / kind).read_text()
        assert not ours & (signals(status, "SigIgn") | signals(status, "SigCgt") | signals(status, "SigBlk")), kind


def signals(status: str, mask: str) -> set[int]:
    """The signals of a mask in /proc/PID/status."""
    (line,) = [line for line in status.splitlines() if line.startswith(f"{mask}:")]
    bits = int(line.split()[1], 16)
    return {number for number in range(1, 65) if bits >> (number - 1) & 1}
