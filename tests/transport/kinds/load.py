"""Load: nodes that run numbered payloads and tell a file of it, a producer that never stops, and what went wrong."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from lowkiq import Lowkiq
from lowkiq.errors import PushFailed
from lowkiq.job import NewJob
from tests.support import ROOT, wait_until

#: Payloads in one push.
PUSHED_AT_ONCE = 40


NODE = """
import os, sys
from lowkiq import Lowkiq
from lowkiq.log import configure
from lowkiq.node.node import Node

configure()
app = Lowkiq()
history = os.open(os.environ["TEST_HISTORY"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


@app.worker(queue_name="jobs", shards_count=12)
def run(payloads_by_id):
    for id, payloads in payloads_by_id.items():
        os.write(history, f"start {os.getpid()} {id} {' '.join(map(str, payloads))}\\n".encode())
        os.write(history, f"end {os.getpid()} {id}\\n".encode())


number, count = map(int, sys.argv[1:])
sys.exit(Node(app, node_number=number, number_of_nodes=count).run())
"""


class Outcome(NamedTuple):
    accepted: int
    #: Accepted payloads that were never run.
    lost: list[int]
    #: Payloads whose first run came after the first run of a later one of their id.
    out_of_order: list[int]
    #: Ids started by a node while another was at them.
    overlaps: list[str]
    #: Runs of a payload beyond its first.
    repeated: int


class Load:
    """
    A context manager: pushes from the beginning to `finish`.

    Args:
        settings: of the nodes and the producer.
    """

    #: What nodes do first of all.
    begin = ""
    #: Seconds between pushes.
    pause = 0.002

    def __init__(self, directory: Path, url: str, *, nodes: int = 2, ids: int = 120, **settings: Any) -> None:
        self._directory = directory
        self._history = directory / "history"
        self._environment = {"LOWKIQ_REDIS_URL": url, "TEST_HISTORY": str(self._history), "PYTHONPATH": str(ROOT)} | {
            f"LOWKIQ_{name.upper()}": str(value) for name, value in settings.items()
        }
        self._count, self._ids = nodes, ids
        self.app = Lowkiq(redis_url=url, **settings)
        self.worker = self.app.worker(queue_name="jobs", shards_count=12)(lambda _: None)
        self.nodes: list[subprocess.Popen[bytes]] = []
        self.accepted: list[int] = []
        #: Pushes that Redis did not accept at once.
        self.refused: list[str] = []
        #: What jobs have told of themselves, as far as it was read, and the payloads that were run by that.
        self._told: list[list[str]] = []
        self._ran: set[int] = set()
        self._read, self._reading = 0, threading.Lock()
        self._enough = threading.Event()
        self._producer = threading.Thread(target=self._produce, daemon=True)

    def __enter__(self) -> Self:
        for number in range(self._count):
            with (self._directory / f"node-{number}.log").open("wb") as log:
                command = [sys.executable, "-c", self.begin + NODE, str(number), str(self._count)]
                environment = {name: value for name, value in os.environ.items() if not name.startswith("LOWKIQ_")}
                self.nodes.append(
                    subprocess.Popen(command, stdout=log, stderr=log, env=environment | self._environment)
                )
        self._producer.start()
        try:
            self.wait_for_progress()
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._enough.set()
        for node in self.nodes:
            node.kill()
            node.wait(60)
        if kind:
            for number in range(self._count):
                print(f"--- node {number}\n{(self._directory / f'node-{number}.log').read_text()[-3000:]}")
            print("--- refused", self.refused[-3:])
        self.app.close()

    def wait_for_progress(self, payloads: int = 200, within: float = 60) -> None:
        """Until so many more payloads have been accepted, and so many more run."""
        accepted, run = len(self.accepted), len(self.ran())
        wait_until(lambda: len(self.accepted) >= accepted + payloads, within=within)
        wait_until(lambda: len(self.ran()) >= run + payloads, within=within)

    def ran(self) -> set[int]:
        self._read_on()
        return set(self._ran)

    def all_live(self) -> bool:
        return all(node.poll() is None for node in self.nodes)

    def finish(self, within: float = 60) -> Outcome:
        """Ends pushing, waits until all that was accepted has been run, or until nothing is left to run."""
        self._enough.set()
        self._producer.join(within)
        wait_until(lambda: not set(self.accepted) - self.ran() or self._is_dry(), within=within, every=0.1)
        return self._outcome()

    def _is_dry(self) -> bool:
        metrics = self.app.metrics()["jobs"]
        return metrics.length + metrics.busy == 0

    def _produce(self) -> None:
        for first in itertools.count(step=PUSHED_AT_ONCE):
            numbers = range(first, first + PUSHED_AT_ONCE)
            jobs = [NewJob(id=str(number % self._ids), payload=number, score=number) for number in numbers]
            while not self._enough.is_set():
                if self.push(jobs):
                    self.accepted += numbers
                    break
            if self._enough.wait(self.pause):
                return

    def push(self, jobs: list[NewJob[int]]) -> bool:
        """Whether Redis has accepted them."""
        try:
            self.worker.perform_async(jobs)
        except PushFailed as error:
            self.refused.append(str(error))
            return False
        return True

    def _read_on(self) -> None:
        if not self._history.exists():
            return
        with self._reading, self._history.open("rb") as history:
            history.seek(self._read)
            whole, _, _ = history.read().rpartition(b"\n")
            self._read += len(whole) + 1 if whole else 0
            lines = [line.split() for line in whole.decode().splitlines()]
            self._told += lines
            self._ran.update(int(number) for kind, _, _, *numbers in lines if kind == "start" for number in numbers)

    def _outcome(self) -> Outcome:
        runs: Counter[int] = Counter()
        latest: dict[str, int] = {}
        at_work: dict[str, str] = {}
        out_of_order, overlaps = [], []
        self._read_on()
        for kind, pid, id, *numbers in self._told:
            if kind == "end":
                at_work.pop(id, None)
                continue
            if at_work.get(id, pid) != pid:
                overlaps.append(id)
            at_work[id] = pid
            for number in map(int, numbers):
                runs[number] += 1
                if runs[number] == 1 and number < latest.get(id, -1):
                    out_of_order.append(number)
                latest[id] = max(latest.get(id, -1), number)
        lost = sorted(set(self.accepted) - runs.keys())
        return Outcome(len(self.accepted), lost, out_of_order, overlaps, sum(runs.values()) - len(runs))
