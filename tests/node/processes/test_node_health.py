"""What a node tells of itself: heartbeats, thread dumps, and `lowkiq nodes`."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from lowkiq.admin.past.history import Point, read_history
from lowkiq.queue import keys
from lowkiq.version import VERSION
from tests import warm
from tests.node.nodes import Nodes
from tests.support import LOWKIQ, ROOT, wait_until


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    return tmp_path / "state"


def lowkiq(nodes: Nodes, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *LOWKIQ, *arguments]
    given = {"LOWKIQ_REDIS_URL": nodes.app.settings.redis_url, "LOWKIQ_NAMESPACE": nodes.namespace}
    return warm.run(command, env=os.environ | given | {"PYTHONPATH": str(ROOT)} | environment, capture_output=True)


def test_a_heartbeat_tells_who_the_node_is_and_what_it_runs(nodes: Nodes) -> None:
    node = nodes.start(slot=3, restarts=2, supervisor_pid=17, last_exit="signal 9").wait_ready()
    nodes.push({"id": "a", "payload": {"gate": "go"}})
    wait_until(lambda: nodes.started("a"))
    beat = wait_until(
        lambda: next((n for n in nodes.app.nodes().nodes if any(t.ids == ["a"] for t in n.threads)), None)
    )
    assert (beat.pid, beat.state, beat.node_number, beat.number_of_nodes) == (node.pid, "ready", 0, 1)
    assert (beat.slot, beat.restarts, beat.supervisor_pid, beat.last_exit) == (3, 2, 17, "signal 9")
    assert beat.owned == {"jobs": [0, 1, 2]} and beat.waited_for == {}
    assert beat.rss > 1 << 20 and beat.redis_round_trip is not None
    running = next(thread for thread in beat.threads if thread.ids)
    assert (running.worker, running.queue, running.jobs) == ("Jobs", "jobs", 1) and running.seconds > 0
    assert nodes.app.nodes().is_well
    nodes.open("go")


def test_a_node_that_drains_is_forgotten_at_once(nodes: Nodes) -> None:
    node = nodes.start().wait_ready()
    wait_until(lambda: nodes.app.nodes().nodes)
    node.send(signal.SIGTERM)
    assert node.wait() == 0
    assert nodes.app.nodes().nodes == []


def test_a_running_node_writes_a_history_that_survives_its_death(nodes: Nodes) -> None:
    def history(queue: str) -> list[Point]:
        return read_history(nodes.app.caller, nodes.namespace, queue, "30d")

    node = nodes.start().wait_ready()
    nodes.push({"id": "a"}, {"id": "b"})
    wait_until(lambda: [point for point in history("jobs") if point.pushed >= 2])
    node.kill()
    ((point,), (total,)) = history("jobs"), history("")
    assert point.pushed == total.pushed == 2
    (beat,) = nodes.app.nodes().nodes
    assert 1 <= len(beat.rss_history) == len(beat.cpu_history) <= 60
    assert min(beat.rss_history) > 1 << 20


def standing_by_with_a_holder(nodes: Nodes, pid: int):
    """The health of two nodes, and of the one that waits for the other: once it knows for whom."""
    found = nodes.app.nodes()
    standing_by = next((node for node in found.nodes if node.pid == pid), None)
    return (found, standing_by) if len(found.nodes) == 2 and standing_by and all(standing_by.waited_for) else None


def test_missing_and_doubled_numbers_and_unowned_shards_are_told(nodes: Nodes) -> None:
    nodes.push(*({"id": str(number)} for number in range(30)))
    assert {shard.shard for shard in nodes.app.nodes().unowned} == {0, 1, 2}
    assert "nothing runs, and 1 queue has jobs due" in lowkiq(nodes, "nodes").stdout
    first = nodes.start(node={"node_number": 1, "number_of_nodes": 3}).wait_ready()
    second = nodes.start(node={"node_number": 1, "number_of_nodes": 3}).wait_ready()
    found, standing_by = wait_until(lambda: standing_by_with_a_holder(nodes, second.pid))
    assert (found.missing, found.doubled) == ([0, 2], [1])
    (holder,) = standing_by.waited_for
    assert f":{first.pid}:" in holder and standing_by.waited_for[holder] == {"jobs": [1]}
    wait_until(lambda: any(alert.kind == "missing" for alert in nodes.app.nodes().alerts))  # both have just begun
    told = lowkiq(nodes, "nodes")
    assert told.returncode == 1
    assert "Nodes 0, 2 of 3 are missing" in told.stdout and "2 nodes have the number 1" in told.stdout
    listed = lowkiq(nodes, "alerts", "--json", "--bad", LOWKIQ_ALERT_PERSISTENCE="0")
    alerts = {alert["kind"]: alert for alert in json.loads(listed.stdout)}
    assert listed.returncode == 1 and "missing" in alerts and "doubled" not in alerts
    # Until a node has noted it, each look tells since when itself has seen it.
    wait_until(lambda: nodes.app.redis().hexists(keys.alerts(nodes.namespace), "missing"))
    (noted,) = (one for one in nodes.app.nodes().alerts if one.kind == "missing")
    first.kill()
    (still,) = wait_until(lambda: [one for one in nodes.app.nodes().alerts if one.kind == "missing"])
    assert still.since == noted.since, "whichever node notes it"
    assert json.loads(lowkiq(nodes, "nodes", "--json").stdout)["missing"] == [0, 2]


def test_a_node_takes_the_place_of_a_dead_one_whose_name_it_is_told(nodes: Nodes) -> None:
    dead = nodes.start(lease_ttl=300).wait_ready()
    (beat,) = wait_until(lambda: nodes.app.nodes().nodes)
    dead.send(signal.SIGKILL)
    dead.wait()
    successor = nodes.start(lease_ttl=300, node={"dead_nodes": [beat.node]}).wait_ready()
    wait_until(lambda: [node.pid for node in nodes.app.nodes().nodes] == [successor.pid])
    wait_until(lambda: nodes.app.nodes().nodes[0].owned == {"jobs": [0, 1, 2]})


def test_ttin_dumps_every_thread_and_its_job(nodes: Nodes, state_dir: Path) -> None:
    node = nodes.start(state_dir=state_dir).wait_ready()
    nodes.push({"id": "a", "payload": {"gate": "go", "secret": "hush"}})
    wait_until(lambda: nodes.is_at("go"))
    node.send(signal.SIGTTIN)
    (told,) = wait_until(lambda: node.logged("thread_dump"))
    path = Path(told["path"])
    assert path.parent == state_dir / "dumps"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    text = path.read_text("utf-8")
    for expected in ("MainThread", "lowkiq-lease-keeper", "lowkiq-doorbell", "wait_for", "1 id ['a']"):
        assert expected in text
    head, busy, *_, idle = text.split("\n\n")
    assert re.match(rf"node \S+:{node.pid}:\S+  Lowkiq {VERSION}  20\S+  \d+ MiB  1 of 5 threads busy$", head)
    assert busy.startswith("lowkiq-worker-") and "performer.py" not in busy  # the way to the job says nothing
    assert re.match(r"4 wait for jobs: (lowkiq-worker-\d(, |$)){4}", idle.strip())
    assert "hush" not in text and "hush" not in node.output
    assert any("Jobs of queue jobs" in entry["job"] for entry in node.logged("thread"))
    nodes.open("go")


def test_a_dump_lists_the_tasks_of_loops_that_run_in_jobs(nodes: Nodes, state_dir: Path) -> None:
    node = nodes.start(state_dir=state_dir).wait_ready()
    nodes.push({"id": "a", "payload": {"tasks": "go"}})
    wait_until(lambda: nodes.is_at("go"))
    node.send(signal.SIGTTIN)
    (told,) = wait_until(lambda: node.logged("thread_dump"))
    text = Path(told["path"]).read_text("utf-8")
    assert "task fetch-prices" in text and "in fetch" in text
    node.send(signal.SIGQUIT)


def test_a_hundred_dumps_harm_nothing(nodes: Nodes, state_dir: Path) -> None:
    node = nodes.start(state_dir=state_dir).wait_ready()
    nodes.push(*({"id": str(number), "payload": {"sleep": 0.001}} for number in range(500)))
    for count in range(1, 101):
        node.send(signal.SIGTTIN)
        wait_until(lambda count=count: len(node.logged("thread_dump")) >= count)
    wait_until(nodes.is_done)
    assert nodes.metrics().processed == 500 and nodes.metrics().failed == 0
    assert 1 <= len(list(state_dir.glob("dumps/dump-*.txt"))) <= 20
    node.send(signal.SIGTERM)
    assert node.wait() == 0


def test_a_dump_is_written_to_a_volume_that_is_open_to_others(nodes: Nodes, state_dir: Path) -> None:
    state_dir.mkdir()
    state_dir.chmod(0o777)
    node = nodes.start(state_dir=state_dir).wait_ready()
    node.send(signal.SIGTTIN)
    wait_until(lambda: node.logged("thread_dump"))


def test_a_dump_is_not_written_where_others_can_write(nodes: Nodes, state_dir: Path) -> None:
    (state_dir / "dumps").mkdir(parents=True)
    (state_dir / "dumps").chmod(0o777)
    node = nodes.start(state_dir=state_dir).wait_ready()
    node.send(signal.SIGTTIN)
    (told,) = wait_until(lambda: node.logged("thread_dump_not_written"))
    assert "is open to others" in told["error"]
    assert list((state_dir / "dumps").iterdir()) == []
    assert node.logged("thread")


def test_abrt_dumps_a_node_that_is_wedged_in_c(nodes: Nodes) -> None:
    node = nodes.start().wait_ready()
    node.send(signal.SIGABRT)
    # C code that walks the frames of running threads can trip over them: then it ends a little earlier.
    assert node.wait() in {-signal.SIGABRT, -signal.SIGSEGV}
    assert "Fatal Python error: Aborted" in node.output
