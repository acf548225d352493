"""
Plays what Kubernetes does to supervisors that nobody numbers, under a job each 50 ms for each of 24 ids, one a shard,
and prints for how long, at most, an id waited:

    python -m benchmarks.rollout deployment     a roll-out of three, then from two to six and back
    python -m benchmarks.rollout statefulset    a roll-out of three, one by one, each gone before its successor comes
    python -m benchmarks.rollout skew           a hundred shards on four nodes, five of them ten times the others

A supervisor has two nodes, and is ready when the chart's probe says so.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from lowkiq import Lowkiq
from lowkiq.admin.metrics import ShardMetrics, read_shards
from lowkiq.admin.past.incidents import read_incidents
from lowkiq.job import shard_of
from tests.support import SOURCES, SUPERVISOR, running_redis, wait_until

#: Nodes of a supervisor; seconds between jobs of an id, under load before the first change, and after each.
NODES: Final = 2
TICK, CALM = 0.05, 2.0
#: Seconds between looks at who has what.
LOOK = 0.05
#: Seconds until a skewed load is looked at, and for which it is.
SETTLES, LOOKED_AT = 60.0, 15.0
#: Seconds that a job of the skewed load takes, and between two of a shard; of the hot ones, a tenth of it.
JOB, EVERY = 0.02, 1.0
HOT: Final = 5

APP = """
import json, os, time
from lowkiq import Lowkiq

app = Lowkiq()

@app.worker(queue_name="jobs", shards_count={shards})
def jobs(payloads_by_id):
    now = time.time()
    for id, payloads in payloads_by_id.items():
        for payload in payloads:
            app.redis().rpush("done", json.dumps([id, payload["n"], payload["at"], now, os.getpid()]))
            time.sleep({seconds})
"""


class Done(NamedTuple):
    """A payload that was performed."""

    id: str
    number: int
    pushed_at: float
    began_at: float
    pid: int


class Pod:
    """A supervisor."""

    def __init__(self, place: Path, url: str, nodes: int) -> None:
        self.state = place / f"pod-{time.monotonic_ns()}"
        words = ["-r", "shop", "--nodes", str(nodes), "--drain-timeout", "25", "--state-dir", str(self.state)]
        self._environment = os.environ | {"REDIS_URL": url, "PYTHONPATH": SOURCES}
        self._place = place
        with (place / "log").open("ab") as log:
            command = [sys.executable, *SUPERVISOR, *words]
            self.process = subprocess.Popen(command, cwd=place, env=self._environment, stderr=log)

    def is_ready(self) -> bool:
        """The chart's readiness probe."""
        command = [sys.executable, *SUPERVISOR, "ping", "--ready", "--state-dir", str(self.state)]
        asked = subprocess.run(command, check=False, cwd=self._place, env=self._environment, capture_output=True)
        return not asked.returncode

    def until_ready(self) -> None:
        wait_until(self.is_ready, within=90, every=0.5)


class Play:
    """Supervisors, the load, and what became of it."""

    def __init__(self, url: str, place: Path, shards: int, seconds: float = 0.0) -> None:
        (place / "shop.py").write_text(APP.format(shards=shards, seconds=seconds), "utf-8")
        self._url, self._place, self.shards = url, place, shards
        self.app = Lowkiq(redis_url=url)
        self.worker = self.app.worker(queue_name="jobs", shards_count=shards)(lambda _: None)
        self.ids = [next(str(n) for n in range(100_000) if shard_of(str(n).encode(), shards) == shard)
                    for shard in range(shards)]  # fmt: skip
        self.calm = CALM
        self.pods: list[Pod] = []
        self.pushed: Counter[str] = Counter()
        #: When a shard was seen with another node than before, and which shard.
        self.moves: list[tuple[float, int]] = []
        #: When a job was pushed late, and by how many seconds: so busy was the machine.
        self.lateness: list[tuple[float, float]] = []
        self._ending = threading.Event()

    def start(self, count: int, nodes: int = NODES) -> list[Pod]:
        new = [Pod(self._place, self._url, nodes) for _ in range(count)]
        self.pods += new
        return new

    def stop(self, some: list[Pod]) -> None:
        for pod in some:
            self.pods.remove(pod)
            pod.process.terminate()
        for pod in some:
            pod.process.wait(60)

    def rows(self) -> list[ShardMetrics]:
        return read_shards(self.app.caller, self.app.shards("jobs", self.shards))

    def owned_by(self, some: list[Pod]) -> int:
        pids = {pod.process.pid for pod in some}
        names = {node.node for node in self.app.nodes().nodes if node.supervisor_pid in pids}
        return sum(row.owner in names for row in self.rows())

    def is_even(self, nodes: int) -> bool:
        owners = Counter(row.owner if row.lease_rest else None for row in self.rows())
        return None not in owners and len(owners) == nodes and max(owners.values()) - min(owners.values()) <= 1

    def until_even(self, nodes: int) -> None:
        """However it ends: a node without a shard is told of."""
        try:
            wait_until(lambda: self.is_even(nodes), within=30, every=0.1)
        except TimeoutError:
            print(f"  not even after 30 s: {Counter(row.owner for row in self.rows())}")

    @contextmanager
    def load(self, every: dict[str, float]) -> Iterator[None]:
        """Jobs of each id, so many seconds apart."""
        threads = [threading.Thread(target=self._push, args=(every,)), threading.Thread(target=self._watch)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._ending.set()
            for thread in threads:
                thread.join()

    def _watch(self) -> None:
        owners: dict[int, str] = {}
        while not self._ending.wait(LOOK):
            for row in self.rows():
                if row.owner and row.lease_rest:
                    if owners.get(row.shard, row.owner) != row.owner:
                        self.moves.append((time.time(), row.shard))
                    owners[row.shard] = row.owner

    def _push(self, every: dict[str, float]) -> None:
        due = dict.fromkeys(every, time.monotonic())
        while not self._ending.wait(max(min(due.values()) - time.monotonic(), 0.001)):
            now, jobs = time.monotonic(), []
            self.lateness.append((time.time(), now - min(due.values())))
            for id in [id for id, at in due.items() if at <= now]:
                due[id] = max(due[id] + every[id], now)
                jobs.append({"id": id, "payload": {"n": self.pushed[id], "at": time.time()}, "score": self.pushed[id]})
                self.pushed[id] += 1
            if jobs:
                self.worker.perform_async(jobs)

    def done(self) -> list[Done]:
        def is_done() -> bool:
            row = self.app.metrics()["jobs"]
            return row.length + row.busy == 0

        wait_until(is_done, within=60)
        return [Done(*json.loads(row)) for row in self.app.redis().lrange("done", 0, -1)]

    def judge(self) -> tuple[list[Done], int, int]:
        """All that was done; how many were lost; and how many ran out of order, or twice."""
        done, seen = self.done(), defaultdict(list)
        for row in done:
            seen[row.id].append(row.number)
        lost = sum(len({*range(count)} - {*seen[id]}) for id, count in self.pushed.items())
        return done, lost, sum(one >= next for numbers in seen.values() for one, next in pairwise(numbers))

    def end(self) -> None:
        for pod in self.pods:
            pod.process.send_signal(signal.SIGQUIT)
        for pod in self.pods:
            pod.process.wait(30)


class Step(NamedTuple):
    """A change of the supervisors."""

    name: str
    began: float
    ended: float
    least: int
    idle: int
    load: float


def deployment(play: Play) -> list[Step]:
    """maxSurge 1 and maxUnavailable 0 for the roll-out; a scale starts and stops all at once."""
    steps = []
    for _ in range(3):
        steps.append(_step(play, "surge", start=1))
        steps.append(_step(play, "TERM", stop=play.pods[:1]))
    steps.append(_step(play, "3 to 2", stop=play.pods[2:]))
    steps.append(_step(play, "2 to 6", start=4))
    steps.append(_step(play, "6 to 2", stop=play.pods[2:]))
    return steps


def statefulset(play: Play) -> list[Step]:
    """One by one, the last ordinal first."""
    steps = []
    for pod in reversed([*play.pods]):
        steps.append(_step(play, "TERM", stop=[pod]))
        steps.append(_step(play, "successor", start=1))
    return steps


def _step(play: Play, name: str, start: int = 0, stop: list[Pod] | None = None) -> Step:
    began = time.time()
    least = play.owned_by(stop) if stop else play.shards * start // (len(play.pods) + start)
    if stop:
        play.stop(stop)
    for pod in play.start(start):
        pod.until_ready()
    nodes = len(play.pods) * NODES
    play.until_even(nodes)
    time.sleep(play.calm)
    rows = play.rows()
    idle = nodes - len({row.owner for row in rows if row.lease_rest})
    return Step(name, began, time.time(), least, idle, os.getloadavg()[0])


def roll(play: Play, steps_of: str) -> int:
    """Plays it, and prints a line a step. Returns 1 if a job was lost, or out of order."""
    for pod in play.start(3):
        pod.until_ready()
    play.until_even(3 * NODES)
    with play.load(dict.fromkeys(play.ids, TICK)):
        time.sleep(play.calm)
        steps = {"deployment": deployment, "statefulset": statefulset}[steps_of](play)
    done, lost, disorder = play.judge()
    for step in steps:
        moved = [shard for at, shard in play.moves if step.began <= at <= step.ended]
        waits = [(row.began_at - row.pushed_at, play.ids.index(row.id)) for row in done
                 if step.began <= row.pushed_at <= step.ended]  # fmt: skip
        (longest, shard), stayed = max(waits), [wait for wait, shard in waits if shard not in moved]
        late = max(late for at, late in play.lateness if step.began <= at <= step.ended)
        print(
            f"{step.name:>10}: longest stall {longest:.2f} s, of a shard that {'moved' if shard in moved else 'stayed'}"
            f" ({max(stayed, default=0.0):.2f} s of those that stayed), pushes up to {late:.2f} s late; {len(moved)} "
            f"moves, least {step.least}, {step.idle} idle nodes, {step.ended - step.began:.0f} s, load {step.load:.1f}"
        )
    print(f"{play.pushed.total():,} jobs, {lost} lost, {disorder} out of order or twice")
    for incident in reversed(read_incidents(play.app.caller, play.app.settings.namespace, kind="moved")):
        print(f"  {incident.says}")
    return int(bool(lost or disorder))


def skew(play: Play) -> int:
    """All hot shards are of one node at first. Returns 1 if it is still too busy after a minute, or one moved twice."""
    for pod in play.start(1, nodes=4):
        pod.until_ready()
    play.until_even(4)
    rows = play.rows()
    hot = [row.shard for row in rows if row.owner == rows[0].owner][:HOT]
    with play.load({id: EVERY / 10 if shard in hot else EVERY for shard, id in enumerate(play.ids)}):
        time.sleep(SETTLES)
        moved, began = Counter(shard for _, shard in play.moves), time.time()
        time.sleep(LOOKED_AT)
        ended = time.time()
    done, lost, disorder = play.judge()
    busy = Counter(row.pid for row in done if began <= row.began_at < ended)
    nodes = [busy[node.pid] for node in play.app.nodes().nodes]
    ratio = max(nodes) * len(nodes) / sum(nodes)
    first = Counter(row.pid for row in done if row.began_at < min(row.began_at for row in done) + 5)
    most = max(moved.values(), default=0)
    print(
        f"busiest node at first {max(first.values()) * 4 / first.total():.2f} × the mean, after a minute {ratio:.2f} "
        f"×; {moved.total()} moves, of one shard at most {most} in that minute; {play.pushed.total():,} jobs, "
        f"{lost} lost, {disorder} out of order; load {os.getloadavg()[0]:.1f}"
    )
    return int(ratio > 1.25 or most > 1 or bool(lost or disorder))


def main(arguments: list[str] | None = None) -> int:
    """Exits 1 if what must not be was seen."""
    parser = argparse.ArgumentParser("python -m benchmarks.rollout", description=__doc__)
    parser.add_argument("play", choices=["deployment", "statefulset", "skew"])
    parser.add_argument("--calm", type=float, default=CALM, help="seconds after each change (minReadySeconds)")
    given = parser.parse_args(arguments)
    is_skew = given.play == "skew"
    with running_redis() as server, tempfile.TemporaryDirectory(prefix="lowkiq-rollout-") as place:
        play = Play(server.url, Path(place), 100 if is_skew else 24, JOB if is_skew else 0.0)
        play.calm = given.calm
        try:
            return skew(play) if is_skew else roll(play, given.play)
        finally:
            play.end()


if __name__ == "__main__":
    sys.exit(main())
