"""
Prints for how long others wait while one job of each shard lasts and a node joins, is recycled, dies or drains, or the
queue is resharded. Exits 1 if one of them waits longer than is promised: after a death, once its successor is ready.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from benchmarks.tally import Latency
from lowkiq import Lowkiq
from lowkiq.admin.metrics import read_shards
from lowkiq.admin.resharding import read_layout
from lowkiq.job import shard_of
from lowkiq_supervisor.control.client import ask
from tests.support import SOURCES, SUPERVISOR, running_redis, wait_until

SHARDS, RESHARDED = 4, 6
#: Seconds between jobs of each of the others, and for which they go on after the long jobs.
TICK, AFTER = 0.05, 2.0
#: What is promised, in milliseconds: of all; and of 99 in 100 once a node is ready after a death.
LONGEST, ONCE_READY = 1_000.0, 50.0
DEATH: Final = "a node dies"
#: An id of each shard, whose job lasts; and those that come and go beside it.
LONG = [next(f"long{n}" for n in range(1000) if shard_of(f"long{n}".encode(), SHARDS) == at) for at in range(SHARDS)]
OTHERS: Final = [f"other{n}" for n in range(16)]

APP = f"""
import json, time
from lowkiq import Lowkiq

app = Lowkiq()

@app.worker(queue_name="jobs", shards_count={SHARDS})
def jobs(id, payloads):
    for payload in payloads:
        app.redis().rpush("done", json.dumps([id, payload["at"], time.time()]))
        time.sleep(payload.get("sleep", 0))
"""


class Play:
    """A supervisor's nodes, and what their jobs wait."""

    def __init__(self, url: str, place: Path, job: float) -> None:
        self._app, self._state, self._job = Lowkiq(redis_url=url), place / ".lowkiq", job
        self._worker = self._app.worker(queue_name="jobs", shards_count=SHARDS)(lambda _: None)
        self._redis = self._app.redis()
        self._pids = list[int]()

    def play(self, name: str) -> bool:
        """Returns whether nobody has waited for too long."""
        change, is_over = CHANGES[name]
        self._redis.delete("done")
        self._push(LONG, sleep=self._job)
        wait_until(lambda: self._redis.llen("done") == SHARDS)
        self._pids = self.pids
        change(self)
        until, over_at = time.monotonic() + self._job + AFTER, 0.0
        while time.monotonic() < until:
            self._push(OTHERS)
            over_at = over_at or (time.time() if is_over(self) else 0.0)
            time.sleep(TICK)
        wait_until(lambda: self._app.metrics()["jobs"].length + self._app.metrics()["jobs"].busy == 0, within=120)
        rows = [json.loads(row) for row in self._redis.lrange("done", 0, -1)]
        pairs = [(at, began - at) for id, at, began in rows if id in OTHERS]
        all_waits, later = Latency.of(wait for _, wait in pairs), Latency.of(wait for at, wait in pairs if at > over_at)
        print(f"{name}: longest {all_waits.most:.0f} ms; once it is over p99 {later.p99:.1f} ms", flush=True)
        return bool(over_at) and (later.p99 <= ONCE_READY if name == DEATH else all_waits.most <= LONGEST)

    def _push(self, ids: list[str], **more: float) -> None:
        at = time.time()
        self._worker.perform_async([{"id": id, "payload": {"at": at} | more, "score": at} for id in ids])

    def ask(self, command: str, **details: Any) -> None:
        ask(self._state, command, **details)

    @property
    def pids(self) -> list[int]:
        return [row["pid"] for row in ask(self._state, "status")["nodes"] if row["state"] == "ready"]

    def is_replaced(self) -> bool:
        """Another process is ready in the place of the first."""
        return len(pids := self.pids) == len(self._pids) and self._pids[0] not in pids

    def is_shared_by(self, nodes: int) -> bool:
        owners = {row.owner for row in read_shards(self._app.caller, self._app.shards("jobs", SHARDS))}
        return None not in owners and len(owners) == nodes

    def is_ready(self) -> bool:
        return (self._state / "control.sock").exists() and len(self.pids) == 1 and self.is_shared_by(1)

    def is_resharded(self) -> bool:
        layout = read_layout(self._app.caller, self._app.settings.namespace, "jobs")
        return layout is not None and not layout.is_moving and layout.shards_count == RESHARDED

    def reshard(self) -> None:
        self._worker.actions.reshard(RESHARDED)


#: What happens, and when it is over.
CHANGES: dict[str, tuple[Callable[[Play], object], Callable[[Play], bool]]] = {
    "a node joins": (lambda play: play.ask("scale", nodes=2), lambda play: play.is_shared_by(2)),
    "a node is recycled": (lambda play: play.ask("restart", slot=0), Play.is_replaced),
    DEATH: (lambda play: os.kill(play.pids[0], signal.SIGKILL), Play.is_replaced),
    "a node drains": (lambda play: play.ask("scale", nodes=1), lambda play: play.is_shared_by(1)),
    "the queue is resharded": (Play.reshard, Play.is_resharded),
}


def main(arguments: list[str] | None = None) -> int:
    """One after the other."""
    parser = argparse.ArgumentParser("python -m benchmarks.roll", description=__doc__)
    parser.add_argument("--job", type=float, default=25.0, help="seconds that the long jobs take")
    given = parser.parse_args(arguments)
    with running_redis() as server, tempfile.TemporaryDirectory(prefix="lowkiq-roll-") as place:
        (Path(place) / "shop.py").write_text(APP, "utf-8")
        environment = os.environ | {"REDIS_URL": server.url, "PYTHONPATH": SOURCES}
        # The long jobs have their threads, be they all on one node: who waits here waits for a shard.
        options = ["--nodes", "1", "--threads", str(3 * SHARDS), "--drain-timeout", str(given.job + 10)]
        with (Path(place) / "log").open("wb") as log:
            command = [sys.executable, *SUPERVISOR, "-r", "shop", *options]
            supervisor = subprocess.Popen(command, cwd=place, env=environment, stderr=log)
        try:
            play = Play(server.url, Path(place), given.job)
            wait_until(play.is_ready, within=60)
            return int(sum(play.play(name) for name in CHANGES) < len(CHANGES))
        finally:
            supervisor.send_signal(signal.SIGQUIT)
            supervisor.wait(30)


if __name__ == "__main__":
    sys.exit(main())
