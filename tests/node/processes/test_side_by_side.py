"""
Upgrades: two versions of Lowkiq on one Redis, as in a rolling update and in one that is taken back.

The other version is a copy of this one with other scripts, and with more to tell than this one knows. Each version's
processes import their own.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lowkiq.version import VERSION
from tests.node.nodes import ROOT, NodeProcess, Nodes, overlaps
from tests.support import LOWKIQ, wait_until

OTHER_VERSION = "99.0.0"
#: Ids, to which both producers push.
IDS = 30

#: Pushes numbered payloads until there are enough; prints its version, their number and the names of its scripts.
PRODUCER = """
import itertools, json, sys, time
import lowkiq
from lowkiq import Lowkiq
from lowkiq.queue import scripts

app = Lowkiq()
worker = app.worker(queue_name="jobs", shards_count=3)(lambda payloads_by_id: None)
by, ids = sys.argv[1], int(sys.argv[2])
numbers = itertools.count()
while not app.redis().exists(f"{app.settings.namespace}:records:enough"):
    some = [next(numbers) for _ in range(3)]
    worker.perform_async({"id": number % ids, "payload": {"by": by, "n": number}} for number in some)
    time.sleep(0.02)  # not to wait for something, but so that a slow machine's nodes can follow
shas = [script.sha.decode() for script in app.caller._choose().values()]
print(json.dumps([lowkiq.__version__, next(numbers), *shas]))
"""


def edit(path: Path, pattern: str, replacement: str) -> None:
    text, count = re.subn(pattern, replacement, path.read_text("utf-8"), count=1, flags=re.MULTILINE)
    assert count, f"no {pattern} in {path}"
    path.write_text(text, "utf-8")


@pytest.fixture(scope="module")
def other_version(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a version can be imported from that has other scripts, and more in heartbeats and histories."""
    directory = tmp_path_factory.mktemp("other-version")
    package = directory / "lowkiq"
    shutil.copytree(ROOT / "lowkiq", package, ignore=shutil.ignore_patterns("__pycache__"))
    edit(package / "version.py", f'"{VERSION}"', f'"{OTHER_VERSION}"')
    edit(
        package / "admin/beats/health.py",
        r"^    beat_age: float = 0.0$",
        '    beat_age: float = 0.0\n    mood: str = "new"',
    )
    edit(package / "admin/past/history.py", r"\{row\.merged\}", "{row.merged} 17")
    for script in package.glob("*/scripts/*.lua"):
        script.write_text(script.read_text("utf-8") + "-- of another version\n", "utf-8")
    return directory


@pytest.fixture(params=["to the newer", "back to the older"])
def versions(request: pytest.FixtureRequest, other_version: Path) -> tuple[Path, Path]:
    """From which version to which."""
    return (ROOT, other_version) if request.param == "to the newer" else (other_version, ROOT)


@pytest.fixture
def nodes(make_nodes: Callable[..., Nodes]) -> Nodes:
    return make_nodes(batch_size=5)


Produce = Callable[[str, Path], "subprocess.Popen[str]"]


@pytest.fixture
def produce(nodes: Nodes) -> Iterator[Produce]:
    """Starts a producer of the Lowkiq in a path."""
    started = []

    def produce(by: str, path: Path) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", PRODUCER, by, str(IDS)]
        started.append(subprocess.Popen(command, env=environment(nodes, path), stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield produce
    for process in started:
        process.kill()
        process.communicate()


def environment(nodes: Nodes, path: Path) -> dict[str, str]:
    """Of a process that imports the Lowkiq in `path`, not the one where the tests are run."""
    return os.environ | {
        "LOWKIQ_REDIS_URL": nodes.app.settings.redis_url,
        "LOWKIQ_NAMESPACE": nodes.namespace,
        "PYTHONPATH": str(path),
        "PYTHONSAFEPATH": "1",
    }


def done(records: list[list[Any]]) -> dict[tuple[str, str], list[int]]:
    """(id, producer) → the numbers of its payloads in the order in which jobs got them."""
    numbers: dict[tuple[str, str], list[int]] = {}
    for _, _, payloads_by_id, *_ in records:
        for id, payloads in payloads_by_id.items():
            for payload in payloads:
                numbers.setdefault((id, payload["by"]), []).append(payload["n"])
    return numbers


def told_by(producer: subprocess.Popen[str]) -> tuple[str, int, set[str]]:
    """What it printed: version, number of payloads, names of scripts."""
    output, _ = producer.communicate(timeout=60)
    assert producer.returncode == 0
    version, count, *shas = json.loads(output)
    return version, count, set(shas)


def test_two_versions_work_side_by_side_and_one_after_the_other(
    nodes: Nodes, versions: tuple[Path, Path], produce: Produce
) -> None:
    """Every payload is run once and in order, by whichever version has its shard."""
    first, second = versions

    def wait_until_all_work(*processes: NodeProcess) -> None:
        """Also after Redis has lost all scripts."""
        nodes.app.redis().script_flush()
        seen = nodes.recorded()
        wait_until(lambda: nodes.pids_since(seen) >= {process.pid for process in processes}, every=0.1)

    replaced = nodes.start(path=first, node={"node_number": 0, "number_of_nodes": 2}).wait_ready()
    beside = nodes.start(path=second, node={"node_number": 1, "number_of_nodes": 2}).wait_ready()
    wait_until(lambda: len({node.version for node in nodes.app.nodes().nodes}) == 2)
    producers = [produce("first", first), produce("second", second)]
    wait_until_all_work(replaced, beside)
    after = nodes.start(path=second, node={"node_number": 0, "number_of_nodes": 2}).wait_ready()
    replaced.send(signal.SIGTERM)
    wait_until_all_work(beside, after)
    nodes.open("enough")
    (version, count, shas), (other, other_count, other_shas) = map(told_by, producers)
    wait_until(nodes.is_done, every=0.1)
    assert replaced.wait() == 0
    assert {version, other} == {VERSION, OTHER_VERSION}
    assert not shas & other_shas, "no script of one version is taken for one of the other"
    assert not overlaps(nodes.records("start", "end", "overlap"))
    counts = {"first": count, "second": other_count}
    assert done(nodes.records("start")) == {
        (str(id), by): list(range(id, counts[by], IDS))
        for id, by in itertools.product(range(IDS), counts)
        if id < counts[by]  # a producer that came late has not got round to every id
    }
    for node in (beside, after):
        node.wait_ready().send(signal.SIGTERM)
        assert node.wait() == 0, node.output


def test_each_version_understands_what_the_other_tells_of_itself(nodes: Nodes, versions: tuple[Path, Path]) -> None:
    """Heartbeats and histories, read by both."""
    for number, path in enumerate(versions):
        nodes.start(path=path, node={"node_number": number, "number_of_nodes": 2}).wait_ready()
    nodes.push({"id": "a", "payload": {}})
    wait_until(nodes.is_done)
    wait_until(lambda: len(nodes.app.nodes().nodes) == 2)
    for path in versions:
        told = json.loads(_nodes_by_command(nodes, path))
        assert {node["version"] for node in told["nodes"]} == {VERSION, OTHER_VERSION}
        assert not told["missing"] and not told["doubled"]


def _nodes_by_command(nodes: Nodes, path: Path) -> str:
    """What `lowkiq nodes --json` of that version says. It exits 1 while a node is still on its way."""
    command = [sys.executable, *LOWKIQ, "nodes", "--json"]
    ended = subprocess.run(
        command, env=environment(nodes, path), capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode in {0, 1} and not ended.stderr, ended.stderr
    return ended.stdout


def test_a_version_takes_over_what_a_dead_node_of_the_other_had_in_hand(
    nodes: Nodes, versions: tuple[Path, Path]
) -> None:
    first, second = versions
    dying = nodes.start(path=first, node={"name": "dying"}).wait_ready()
    nodes.push(*({"id": id, "payload": {"n": n, "gate": "open"}} for id in ("a", "b") for n in range(3)))
    wait_until(lambda: nodes.started("a") or nodes.started("b"))
    dying.kill()
    nodes.app.redis().script_flush()
    nodes.open("open")
    nodes.start(path=second, node={"dead_nodes": ["dying"]}).wait_ready()
    wait_until(nodes.is_done)
    assert nodes.ended("a") and nodes.ended("b")
    assert {payload["n"] for _, _, jobs, *_ in nodes.records("end") for payload in jobs.get("a", [])} == {0, 1, 2}


def move(nodes: Nodes) -> None:
    """As a Lowkiq of layout 3 would."""
    redis = nodes.app.redis()
    for shard in range(3):
        redis.hset(f"{nodes.namespace}:{{jobs:{shard}}}:meta", "layout", "3:3")
    redis.hset(f"{nodes.namespace}:queues", "jobs", "3:3")


def test_an_older_node_leaves_a_queue_that_is_moved_alone_and_refuses_to_boot_for_it_alone(nodes: Nodes) -> None:
    refusal = f"queue jobs has layout 3, this Lowkiq {VERSION} writes layout 2: upgrade it"
    node = nodes.start().wait_ready()
    nodes.push({"id": "a", "payload": {}, "perform_in": 4e9})
    move(nodes)
    for shard in range(3):
        nodes.app.redis().zadd(f"{nodes.namespace}:{{jobs:{shard}}}:due", {"a": 1.0}, xx=True)
    wait_until(lambda: refusal in [line["error"] for line in node.logged("queue_refused")])
    assert node.is_running()
    assert not nodes.records("start"), "the job is left to who can keep it"
    assert nodes.metrics().length == 1
    again = nodes.start()
    assert again.wait() == 3
    assert [line["error"] for line in again.logged("boot_refused")] == [refusal]
