"""
The promise on a real history: whatever dies, every path ends up right, and no change is applied out of order.

Needs the recorded history of sidekiq beside the checkout, in `../shared/data`.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import redis

from examples.tree_copy import Copy
from lowkiq import Lowkiq
from lowkiq.admin.metrics import QueueMetrics
from tests.harness import Supervised
from tests.support import ROOT, SUPERVISOR, wait_until

DATA = ROOT.parent / "shared" / "data"
EVENTS, TREE = DATA / "sidekiq.events.jsonl.gz", DATA / "sidekiq.tree.tsv"

NODES = 4
KILLS = 12

#: Seconds a batch takes: so long that a kill always finds some in the middle.
DELAY = 0.2

pytestmark = [
    pytest.mark.skipif(not EVENTS.exists(), reason=f"no recorded history in {DATA}"),
    pytest.mark.timeout(300),
]


class Deployment(Supervised):
    """A supervisor with nodes and a Redis of its own, and the commands of the example, in a directory of their own."""

    def __init__(self, directory: Path) -> None:
        self._environment = {"LOWKIQ_STATE_DIR": str(directory), "TREE_MIRROR_DELAY": str(DELAY)}
        arguments = [*SUPERVISOR, "--nodes", str(NODES), "-r", "examples.tree_mirror"]
        super().__init__(directory, arguments, self._environment)
        self._started: list[subprocess.Popen[bytes]] = [self.process]
        self._app = Lowkiq(redis_url=f"unix://{directory}/redis/redis.sock")

    def check(self) -> tuple[int, str]:
        """The exit code of the example's check, and what it prints."""
        with self.start("check", TREE, subprocess.PIPE) as check:
            printed, _ = check.communicate(timeout=60)
        return check.returncode, printed.decode()

    def nodes(self) -> list[psutil.Process]:
        """The node processes that are up, the oldest first."""
        children = psutil.Process(self.process.pid).children()
        return sorted(filter(is_node, children), key=psutil.Process.create_time)

    def queue(self) -> QueueMetrics | None:
        """The numbers of the example's queue; None before anything was pushed."""
        return self._app.metrics().get("TreeMirror")

    def jobs_run(self) -> bool:
        return (queue := self.queue()) is not None and queue.busy > 0

    def nothing_is_left(self) -> bool:
        return (queue := self.queue()) is not None and queue.length + queue.busy == 0

    def redis_answers(self) -> bool:
        try:
            return bool(self._app.redis().ping())
        except redis.ConnectionError:
            return False

    def applied(self) -> int:
        return Copy(self._app.redis()).counts().applied

    def all_nodes_are_up(self) -> bool:
        return len(self.nodes()) == NODES

    def __exit__(self, *_: object) -> None:
        for process in self._started:
            if process.poll() is None:
                family = psutil.Process(process.pid)
                for each in [family, *family.children(recursive=True)]:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        each.kill()
            process.wait()
        super().__exit__()
        self._app.redis().close()

    def until(self, condition: Callable[[], bool], within: float = 60.0) -> None:
        """Waits until it holds; fails with the log if it does not in time."""

        def holds() -> bool:
            assert self.process.poll() is None, f"the supervisor has ended\n{self.log_path.read_text()[-8000:]}"
            return condition()

        try:
            wait_until(holds, within=within)
        except TimeoutError:
            pytest.fail(f"still not: {condition.__name__}\n{self.log_path.read_text()[-8000:]}")

    def start(self, command: str, file: Path, stdout: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", "examples.tree_mirror", command, str(file)],
            cwd=ROOT, env=os.environ | self._environment, stdout=stdout,
        )  # fmt: skip
        self._started.append(process)
        return process


def is_node(process: psutil.Process) -> bool:
    """True if it is a node by its title, and not Redis or a child that is only just forked."""
    try:
        return process.cmdline()[0].startswith("lowkiq: node")
    except (psutil.NoSuchProcess, psutil.ZombieProcess, IndexError):
        return False


@pytest.fixture
def deployment() -> Iterator[Deployment]:
    # Not tmp_path: a socket's path must be short.
    directory = Path(tempfile.mkdtemp(prefix="lowkiq-"))
    with Deployment(directory) as deployment:
        yield deployment
    shutil.rmtree(directory)


@pytest.fixture
def slices(tmp_path: Path) -> list[Path]:
    """The recorded history in so many files, one a kill."""
    lines = gzip.decompress(EVENTS.read_bytes()).splitlines(keepends=True)
    size = -(-len(lines) // KILLS)
    files = [tmp_path / f"{number}.jsonl" for number in range(KILLS)]
    for number, file in enumerate(files):
        file.write_bytes(b"".join(lines[number * size : (number + 1) * size]))
    assert sum(len(file.read_bytes().splitlines()) for file in files) == len(lines)
    return files


@pytest.mark.long
def test_a_dozen_kills_leave_every_path_right_and_in_order(deployment: Deployment, slices: list[Path]) -> None:
    deployment.until(deployment.all_nodes_are_up)
    for number, slice_ in enumerate(slices):
        third = deployment.applied() + len(slice_.read_bytes().splitlines()) // 3

        def a_third_is_applied(third: int = third) -> bool:
            return deployment.applied() >= third

        feeding = deployment.start("feed", slice_)
        # In turn: just after claims, and while many batches are applied and not yet acknowledged.
        deployment.until(a_third_is_applied if number % 2 else deployment.jobs_run)
        deployment.nodes()[0].kill()  # the oldest: each in turn, so that the supervisor sees no crash loop
        assert feeding.wait(60) == 0
        deployment.until(deployment.all_nodes_are_up)
    deployment.until(deployment.nothing_is_left)

    code, printed = deployment.check()
    assert code == 0, printed
    rows = dict(line.rsplit(maxsplit=1) for line in printed.splitlines() if line.startswith(" "))
    numbers = {name.strip(): int(value.replace(",", "")) for name, value in rows.items()}
    assert numbers["paths"] == len(TREE.read_bytes().splitlines())
    assert numbers["changes applied"] == 9345
    assert numbers["out-of-order (must be 0)"] == 0
    assert numbers["replays (allowed)"] > 0, "no kill hit a batch between applying and acknowledging it"
    queue = deployment.queue()
    assert queue is not None
    assert queue.morgue_length == 0

    deployment.process.terminate()
    assert deployment.process.wait(60) == 0


def test_check_fails_where_a_change_is_missing(deployment: Deployment, slices: list[Path]) -> None:
    deployment.until(deployment.redis_answers)
    assert deployment.start("feed", slices[-1]).wait(60) == 0
    deployment.until(deployment.nothing_is_left)
    code, printed = deployment.check()
    assert code == 1
    assert "NOT right" in printed
    assert "missing: " in printed


def test_slices_are_the_whole_history(slices: list[Path]) -> None:
    seqs = [json.loads(line)["seq"] for file in slices for line in file.read_bytes().splitlines()]
    assert seqs == list(range(1, len(seqs) + 1))
