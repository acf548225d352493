"""Real nodes for tests: processes that run jobs which do what their payloads say, and record it in Redis."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

import redis

from lowkiq import Lowkiq, Pushed, Worker
from lowkiq.admin.metrics import QueueMetrics
from lowkiq.job import EncodedJob, shard_of
from lowkiq.queue.push_calls import push_call
from lowkiq.queue.shard import Shard
from tests import warm
from tests.node.script import SCRIPT
from tests.queue.stamps import once
from tests.support import ROOT, RedisServer, wait_until


class NodeProcess:
    """A node in a process of its own."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self._log = log
        self.pid = process.pid

    def logged(self, event: str) -> list[dict[str, Any]]:
        lines = self._log.read_text("utf-8").splitlines(keepends=True)
        entries = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("\n")]
        return [entry for entry in entries if entry["event"] == event]

    @property
    def output(self) -> str:
        return self._log.read_text("utf-8")

    def wait_ready(self) -> Self:
        wait_until(lambda: self.logged("ready") or self._process.poll() is not None, every=0.02)
        assert self._process.poll() is None, self.output
        return self

    def send(self, number: int) -> None:
        self._process.send_signal(number)

    def is_running(self) -> bool:
        return self._process.poll() is None

    def wait(self, timeout: float = 60) -> int:
        return self._process.wait(timeout)

    def kill(self) -> None:
        """As the kernel would: at once, and without a word."""
        self.send(signal.SIGKILL)
        self.wait()

    def end(self) -> None:
        if self.is_running():
            self.kill()


class Nodes:
    """Starts nodes of one namespace, pushes jobs for them and reads what the jobs recorded; ends the nodes at last."""

    #: The program that a node runs.
    script = SCRIPT

    def __init__(self, directory: Path, server: RedisServer, namespace: str, **options: Any) -> None:
        self._directory = directory
        self._server = server
        self._options = options
        self._started: list[NodeProcess] = []
        self._numbers = itertools.count()
        self.namespace = namespace
        # A push takes as long as a busy machine needs for it.
        self.app = Lowkiq(redis_url=server.url, namespace=namespace, alert_persistence=0, push_timeout=100)
        self.worker: type[Worker] = self.app.worker(queue_name="jobs", shards_count=options.get("shards_count", 3))(
            lambda _: None
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for node in self._started:
            node.end()
        for node in self._started:  # pytest shows it of a test that fails
            print(f"--- node {node.pid}\n{node.output}")
        self.app.close()

    def start(self, *, node: dict[str, Any] | None = None, path: Path = ROOT, **settings: Any) -> NodeProcess:
        """Starts a node with these settings, of the Lowkiq that is in `path`."""
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("LOWKIQ_", "REDIS_URL", "COV_"))
        }
        environment = {
            "LOWKIQ_REDIS_URL": self._server.url,
            "LOWKIQ_NAMESPACE": self.namespace,
            "PYTHONPATH": str(path),
            "PYTHONSAFEPATH": "1",  # not from where the tests are run
            "TEST_OPTIONS": json.dumps(self._options | {"node": node or {}}),
        } | {f"LOWKIQ_{name.upper()}": str(value) for name, value in settings.items()}
        if self._options.get("isolation") == "spawn":
            source = self._directory / "begun_anew.py"
            source.write_text(self.script)
            environment["TEST_SOURCE"] = str(source)
        log = self._directory / f"node-{next(self._numbers)}.log"
        with log.open("wb") as output:
            command = [sys.executable, "-c", self.script]
            process = warm.popen(command, stdout=output, stderr=output, env=kept | environment)
        self._started.append(NodeProcess(process, log))
        return self._started[-1]

    def push(self, *jobs: dict[str, Any]) -> Pushed:
        return self.worker.perform_async(jobs)  # type: ignore[arg-type]

    def push_bytes(self, id: bytes, payload: bytes) -> None:
        """As a program that is not Lowkiq would: an id that is no UTF-8, a payload that is no JSON."""
        count = self.worker.shards_count
        shard = Shard(self.namespace, "jobs", shard_of(id, count), count)
        self.app.caller.run(push_call(shard, [EncodedJob(id, payload, "", "")], once()))

    def open(self, gate: str) -> None:
        self.app.redis().set(f"{self.namespace}:records:{gate}", 1)

    def is_at(self, gate: str) -> bool:
        """Whether a job waits at a gate, or has: a little later than it has recorded its start."""
        return bool(self.app.redis().exists(f"{self.namespace}:records:{gate}:reached"))

    def records(self, *kinds: str) -> list[list[Any]]:
        """What jobs recorded, in Redis's order: [kind, pid, details …]. Nothing while Redis is away."""
        with contextlib.suppress(redis.ConnectionError):
            rows = [json.loads(row) for row in self.app.redis().lrange(f"{self.namespace}:records", 0, -1)]
            return [row for row in rows if not kinds or row[0] in kinds]
        return []

    def recorded(self) -> int:
        """How many records there are: cheaper than to read them."""
        return self.app.redis().llen(f"{self.namespace}:records")

    def pids_since(self, seen: int) -> set[int]:
        """Who has recorded anything after the first so many records."""
        return {json.loads(row)[1] for row in self.app.redis().lrange(f"{self.namespace}:records", seen, -1)}

    def started(self, id: str) -> bool:
        return any(id in row[2] for row in self.records("start"))

    def ended(self, id: str) -> bool:
        return any(id in row[2] for row in self.records("end"))

    def metrics(self) -> QueueMetrics:
        return self.app.metrics()["jobs"]

    def crashes(self) -> int:
        return sum(self.app.redis().hlen(f"{shard.prefix}crashes") for shard in self._shards())

    def held_leases(self) -> list[bytes | str]:
        owners = [self.app.redis().hget(f"{shard.prefix}owner", "node") for shard in self._shards()]
        return [owner for owner in owners if owner]

    def _shards(self) -> list[Shard]:
        return self.app.shards("jobs", self.worker.shards_count)

    def is_done(self) -> bool:
        with contextlib.suppress(redis.ConnectionError):
            metrics = self.metrics()
            return metrics.length + metrics.busy == 0
        return False


def overlaps(records: list[list[Any]], dead: set[int] = frozenset()) -> list[tuple[str, int, int]]:  # type: ignore[assignment]
    """
    Ids that were started while somebody was at them: another process, or, as it has seen itself, the same. Processes in
    `dead` never record an end.
    """
    running: dict[str, int] = {}
    found = []
    for what, pid, jobs, *_ in records:
        for id in jobs:
            if what == "overlap":
                found.append((id, pid, pid))
            elif what == "end":
                if running.get(id) == pid:
                    del running[id]
            else:
                if id in running and running[id] not in {pid, *dead}:
                    found.append((id, running[id], pid))
                running[id] = pid
    return found
