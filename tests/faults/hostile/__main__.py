"""
Four nodes of one supervisor run innocent jobs beside hostile ones, each of which does a deed (deeds.py) to its process.

Usage: python -m tests.faults.hostile --minutes 10. Ends with 0 if every innocent payload was performed once, or again
only as its process had died of a deed; in order; met nothing of another's; and nothing is left of all of it at the end.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import psutil

from lowkiq import Lowkiq
from tests.chaos.journal import read
from tests.faults.hostile.history import History
from tests.faults.hostile.jobs import FOLLOWING, HOSTILE, INNOCENT, SHARDS
from tests.harness import Supervised, status
from tests.supervisor.hour import Load
from tests.support import RedisServer, running_redis, wait_until
from tests.warm import COLD

NODES: Final = 4
#: Ids of each innocent queue: few, so that each has payloads behind one another.
IDS: Final = 20
DEEDS_A_SECOND: Final = 1.5
MEMORY: Final = Path("/dev/shm")
#: Deeds of each hostile queue that leave what goes with a process; the last nodes have done them, too. None of them
#: holds a process up: half a second is too little for what it has to clear up on a busy machine.
LAST: Final = (
    "leave shared memory", "leave a folder", "leave a child", "keep a pool", "outlive", "set context", "close stderr",
)  # fmt: skip
#: Those of them that leave files.
FILES: Final = ("leave shared memory", "leave a folder", "keep a pool")
#: Seconds after the last deed in which all is done.
PATIENCE: Final = 600.0


class Hostile:
    """The load, and what must hold of it."""

    def __init__(
        self, directory: Path, server: RedisServer, seconds: float, luck: random.Random, only: str = ""
    ) -> None:
        self.directory, self.seconds, self.luck, self.only = directory, seconds, luck, only
        self.folders = directory / "folders"
        for folder in (self.folders, directory / "done"):
            folder.mkdir(parents=True)
        #: Deeds that were asked for, as `queue id`.
        self.asked: set[str] = set()
        (directory / "journal").touch()
        self.environment = {
            "REDIS_URL": server.url, "HOSTILE_DIRECTORY": str(directory), "TMPDIR": str(self.folders),
            "LOWKIQ_SOAK": "1", **COLD,
        }  # fmt: skip
        self.app = Lowkiq(redis_url=server.url)
        for queue in [*INNOCENT, FOLLOWING, *HOSTILE]:
            self.app.worker(queue_name=queue, shards_count=SHARDS)(_nothing)
        self.load = Load(self.push)

    def run(self) -> list[str]:
        """What does not hold."""
        options = ["--nodes", str(NODES), "--max-rss", "700M", "--drain-timeout", "5"]
        began = time.monotonic()
        arguments = ["-r", "tests.faults.hostile.jobs", *options]
        with Supervised.main(self.directory, *arguments, **self.environment).ready(NODES) as supervisor:
            descriptors = _descriptors(supervisor.process.pid)
            self.load.start()
            self.do_deeds(time.monotonic())
            self.load.stop()
            wait_until(self.is_dry, "the end of every job", within=PATIENCE)
            for number, deed in itertools.product(range(NODES), LAST):
                for queue in HOSTILE:
                    self.ask(queue, f"last {number}:{deed}")
            wait_until(self.is_dry, "the end of the last jobs", within=PATIENCE)
            wait_until(lambda: status(self.directory)["supervisor"]["state"] == "running", "health")
            wait_until(lambda: not _descriptors(supervisor.process.pid) - descriptors, "the end of what it has opened")
            supervisor.send(signal.SIGTERM)
            code = supervisor.exit_code()
            supervisor.nothing_is_left()
            lines = supervisor.log()
        history = History([*read(self.directory / "journal")], lines)
        complaints = [f"the supervisor has ended with {code}"] if code else []
        for check in (self.check_jobs, self.check_deeds, self.left):
            complaints += check(history)
        complaints += self.check_log(lines)
        kept = len(self.load.pushed)
        print(
            f"{time.monotonic() - began:5.0f} s  {kept} innocent payloads, {len(history.deeds)} deeds, {history.says}"
        )
        return complaints

    def push(self, names: list[str]) -> None:
        """Pushes innocent payloads of these names: job-TURN-NUMBER."""
        for name in names:
            queue, id, number = self._place(name)
            self.app.workers[queue].perform_async([{"id": id, "payload": number, "score": number}])

    def _place(self, name: str) -> tuple[str, str, int]:
        """The queue and id of a payload, and its number, which is its place among those of its id."""
        _, turn, number = name.split("-")
        where = crc32(name.encode())
        where, place = divmod(where, len(INNOCENT))
        queue = INNOCENT[place]
        return queue, f"{queue}-{where % IDS}", int(turn) * 10 + int(number)

    def do_deeds(self, began: float) -> None:
        """Does all deeds, again and again, in another order each time."""
        deeds = [(queue, deed) for queue, deeds in HOSTILE.items() for deed in deeds if self.only in deed]
        for number in range(round(self.seconds * DEEDS_A_SECOND)):
            turn, place = divmod(number, len(deeds))
            if not place:
                self.luck.shuffle(deeds)
            queue, deed = deeds[place]
            time.sleep(max(0.0, began + number / DEEDS_A_SECOND - time.monotonic()))
            self.ask(queue, f"{turn}:{deed}")

    def ask(self, queue: str, id: str) -> None:
        """Pushes a job that does a deed, if the queue's jobs do such."""
        if id.partition(":")[2] in HOSTILE[queue]:
            self.asked.add(f"{queue} {id}")
            self.app.workers[queue].perform_async([{"id": id}])

    # ── what must hold ──────────────────────────────────────────────────────────────────────────────────────────────

    def is_dry(self) -> bool:
        return all(row.length + row.busy == 0 for row in self.app.metrics().values())

    def check_log(self, lines: list[dict[str, Any]]) -> Iterator[str]:
        yield from (f"the log says {line}" for line in lines if line["event"] in {"crash_loop", "died_wont_restart"})

    def check_jobs(self, history: History) -> Iterator[str]:
        for queue in [*INNOCENT, FOLLOWING]:
            buried = self.app.queries(queue, SHARDS).morgue_range_by_updated_at()
            yield from (f"buried: {queue} {job.id}: {job.error}" for job in buried)
        expected = {self._place(name) for name in self.load.pushed}
        expected |= {(FOLLOWING, id, number) for _, id, number in expected}
        yield from (f"never performed: {payload}" for payload in sorted(expected - history.runs.keys()))
        yield from history.complaints

    def check_deeds(self, history: History) -> Iterator[str]:
        """A run in which nothing was done, or nobody had to clear up, proves nothing."""
        yield from (f"never done: {deed}" for deed in sorted(self.asked - history.deeds))
        for queue, deed in itertools.product(HOSTILE, FILES):
            if deed in HOSTILE[queue] and f"{queue} {deed}" not in history.cleared:
                yield f"no process had to clear up: {queue} {deed}"

    def left(self, history: History) -> Iterator[str]:
        """What is there once all has ended. Files of processes that had no time to clear up are theirs to leave."""
        mine = ("HOSTILE_DIRECTORY", str(self.directory))
        for process in psutil.process_iter(["environ", "cmdline", "pid", "status"]):
            if process.pid != os.getpid() and mine in (process.info["environ"] or {}).items():
                yield f"a process is left: {process.info['pid']} {process.info['cmdline']}"
        for path in [*self.folders.iterdir(), *MEMORY.glob(f"*{self.directory.name}-*")]:
            maker = re.search(r"-(\d+)-[^-]*$", path.name)
            if not maker or int(maker[1]) not in history.cut_off:
                yield f"a file is left: {path}"
            if path.parent == MEMORY:
                path.unlink(missing_ok=True)


def _nothing(id: str, payloads: list[Any]) -> None:
    """Stands for the workers of the same queues that the nodes have."""


def _descriptors(pid: int) -> Counter[str]:
    """What a process has open, by kind."""
    found: Counter[str] = Counter()
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            found[re.sub(r"\d+", "N", str(path.readlink()))] += 1
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--keep", type=Path, help="a new folder, for all that was noted")
    parser.add_argument("--only", default="", help="the deeds whose names have this, beside the last ones")
    given = parser.parse_args()
    print(f"seed {given.seed}")
    with tempfile.TemporaryDirectory() as directory, running_redis() as server:
        luck = random.Random(given.seed)
        complaints = Hostile(given.keep or Path(directory), server, given.minutes * 60, luck, given.only).run()
    print(*complaints, sep="\n")
    sys.exit(1 if complaints else 0)


if __name__ == "__main__":
    main()
