"""
An hour of work in ten minutes: one supervisor through everything that its judgement is for, under load, by a schedule.

Usage: python -m tests.supervisor.hour --minutes 10. Ends with 0 if the supervisor is the same at the end, nobody
healthy was stopped by anything but the roll, every innocent job was performed, and the log tells it all in its order.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lowkiq import Lowkiq
from lowkiq.errors import PushFailed
from lowkiq.node.helpers.tree import kill_tree
from tests.harness import Supervised, command, status
from tests.support import RedisServer, running_redis, wait_until
from tests.warm import COLD

APP = """
import os, signal, time
from pathlib import Path
from lowkiq import Lowkiq

if Path("broken").exists():
    import nothing_of_this_name

def connect():
    if Path("away").exists():
        Path("away").unlink()
        raise ConnectionRefusedError("the database is away")

app = Lowkiq(on_server_init=connect, max_crashes=5)

@app.worker(shards_count=16, batch_size=5)
def work(payloads_by_id):
    if any(id.startswith("poison") for id in payloads_by_id):
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)
    if "huge" in payloads_by_id:
        held = bytearray(os.urandom(1)) * (400 << 20)
        while not Path("let-go").exists():
            time.sleep(0.05)
    time.sleep(0.005)
    with Path(f"done-{os.getpid()}").open("a") as file:
        file.write("".join(f"{id}\\n" for id in payloads_by_id))
"""

NODES = 4
KILLS_A_SECOND = 5
#: The story as the log must tell it: an event, and facts of its line.
STORY: list[tuple[str, dict[str, str]]] = [
    ("died_will_restart", {"kind": "killed"}),
    ("died_will_restart", {"kind": "job"}),
    ("replacing", {"why": "MiB of memory"}),
    ("handing_over", {"why": "MiB of memory"}),
    ("ended_for_successor", {"why": "MiB of memory"}),
    ("rolling_restart", {}),
    ("roll_stopped", {"reason": "refused to start"}),
    ("rolling_restart", {}),
    ("rolling_restart_over", {}),
    ("died_will_restart", {"kind": "boot"}),
    ("draining", {"why": "TERM"}),
]


def work(payloads_by_id: dict[str, list[Any]]) -> None:
    """Stands for the worker of the same name in the supervised application."""


class Load(threading.Thread):
    """Pushes innocent jobs, each of an id of its own, until it is stopped."""

    def __init__(self, push: Callable[[list[str]], object]) -> None:
        super().__init__(name="load", daemon=True)
        self._push = push
        self._stopping = threading.Event()
        self.pushed: set[str] = set()

    def run(self) -> None:
        for turn in itertools.count():
            ids = [f"job-{turn}-{number}" for number in range(10)]
            while not self._stopping.wait(0.2):
                with contextlib.suppress(PushFailed):  # while Redis is away: pushing all again is safe
                    self._push(ids)
                    self.pushed |= set(ids)
                    break
            if self._stopping.is_set():
                return

    def stop(self) -> None:
        self._stopping.set()
        self.join()


class Hour:
    """The schedule. Each chapter begins when its part of the time has come, and waits for its own outcome."""

    def __init__(self, directory: Path, server: RedisServer, seconds: float, luck: random.Random) -> None:
        self.directory, self.server, self.seconds, self.luck = directory, server, seconds, luck
        (directory / "shop.py").write_text(APP)
        app = Lowkiq(redis_url=server.url)
        self.worker = app.worker(shards_count=16, batch_size=5)(work)
        self.app = app
        self.load = Load(lambda ids: self.worker.perform_async([{"id": name} for name in ids]))
        self.killed: set[int] = set()

    def run(self) -> None:
        chapters = [self.kills, self.trees, self.poison, self.memory]
        chapters += [self.broken_roll, self.redis_away, self.transient_boot]
        options = ["--nodes", str(NODES), "--max-rss", "250M", "--drain-timeout", "20"]
        environment = {"REDIS_URL": self.server.url, "LOWKIQ_SOAK": "1", **COLD}
        began = time.monotonic()
        with Supervised.main(self.directory, "-r", "shop", *options, **environment).ready(NODES) as supervisor:
            self.supervisor = supervisor
            self.load.start()
            for number, chapter in enumerate(chapters):
                self._rest(began + number * self.seconds / len(chapters))
                print(f"{time.monotonic() - began:5.0f} s  {chapter.__name__}", flush=True)
                chapter()
                self.healthy()
            self._rest(began + self.seconds)
            self.load.stop()
            wait_until(lambda: self.load.pushed <= self.done(), "every innocent job")
            assert status(self.directory)["supervisor"]["pid"] == supervisor.process.pid
            supervisor.end()
            self.check_log()
        kept = len(self.load.pushed)
        print(f"{time.monotonic() - began:5.0f} s  the end: {kept} innocent jobs performed, {len(self.killed)} kills")

    # ── chapters ────────────────────────────────────────────────────────────────────────────────────────────────────

    def kills(self) -> None:
        """Kill -9 of a random node, five times a second."""
        until = time.monotonic() + self.seconds / 10
        while time.monotonic() < until:
            found = status(self.directory)
            pids = [node["pid"] for node in [*found["nodes"], *found["beside"]] if node["pid"]]
            if pids:
                self._kill(self.luck.choice(pids))
            time.sleep(1 / KILLS_A_SECOND)

    def trees(self) -> None:
        """Beside it a second one, all of whose processes die at one stroke, three times: they have killed nobody."""
        directory = self.directory / "beside"
        directory.mkdir()
        (directory / "shop.py").write_text(APP)
        options, environment = ["-r", "shop", "--nodes", "2"], {"REDIS_URL": self.server.url, **COLD}
        for turn in range(3):
            with Supervised.main(directory, *options, **environment).ready(2) as second:
                wait_until(lambda turn=turn: len([*directory.glob("done-*")]) > turn, "its first jobs")
                second.send(signal.SIGSTOP)  # it sees none of theirs, and dies with them
                kill_tree(second.process.pid)
        assert not self.app.queries(self.worker.queue_name, 16).morgue_range_by_updated_at()

    def poison(self) -> None:
        """Three jobs that kill their node whenever they run: each is buried in the end, and nothing else is."""
        self.worker.perform_async([{"id": f"poison-{number}"} for number in range(3)])
        queries = self.app.queries(self.worker.queue_name, 16)
        wait_until(lambda: len(queries.morgue_range_by_updated_at()) >= 3, "their burial")
        assert {job.id for job in queries.morgue_range_by_updated_at()} == {f"poison-{number}" for number in range(3)}

    def memory(self) -> None:
        """A job that outgrows --max-rss: its node is replaced, and the job ends once."""
        self.worker.perform_async([{"id": "huge"}])
        self.supervisor.until_logged("handing_over")
        (self.directory / "let-go").touch()
        self.supervisor.until_logged("ended_for_successor")
        wait_until(lambda: "huge" in self.done(), "its end")

    def broken_roll(self) -> None:
        """New code that can't be imported: nobody ends for it. Mended, the roll goes on."""
        self.healthy()
        before = {node["pid"] for node in status(self.directory)["nodes"]}
        (self.directory / "broken").touch()
        stopped = command(self.directory, "restart", "--wait")
        assert stopped.returncode == 1, stopped
        time.sleep(min(8, self.seconds / 20))  # in which the old way had ended everything
        assert {node["pid"] for node in status(self.directory)["nodes"]} == before
        (self.directory / "broken").unlink()
        resumed = command(self.directory, "restart", "--resume", "--wait")
        assert resumed.returncode == 0, resumed
        assert not before & {node["pid"] for node in status(self.directory)["nodes"]}

    def redis_away(self) -> None:
        """Once it hangs, once it dies."""
        self.server.pause()
        time.sleep(min(10, self.seconds / 20))
        self.server.resume()
        time.sleep(min(10, self.seconds / 20))
        self.server.kill()
        time.sleep(min(10, self.seconds / 20))
        self.server.start()

    def transient_boot(self) -> None:
        """The next node to boot finds its database away, once."""
        (self.directory / "away").touch()
        self._kill(status(self.directory)["nodes"][1]["pid"])
        wait_until(lambda: not (self.directory / "away").exists(), "the failed boot")

    # ── what must hold ──────────────────────────────────────────────────────────────────────────────────────────────

    def healthy(self) -> None:
        """Wait until every node is ready."""
        wait_until(lambda: status(self.directory)["supervisor"]["state"] == "running", "health")

    def done(self) -> set[str]:
        return {name for path in self.directory.rglob("done-*") for name in path.read_text().splitlines()}

    def check_log(self) -> None:
        lines = self.supervisor.log()
        tale: Iterator[dict[str, Any]] = iter(lines)
        for event, facts in STORY:
            found = any(
                line["event"] == event and all(text in str(line.get(name)) for name, text in facts.items())
                for line in tale
            )
            assert found, f"the log doesn't tell of {event} {facts} where it should"
        for line in lines:
            if line["event"].startswith("died_"):
                assert line["pid"] in self.killed or line["kind"] in {"job", "boot"}, line

    def _kill(self, pid: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            self.killed.add(pid)

    @staticmethod
    def _rest(until: float) -> None:
        time.sleep(max(0.0, until - time.monotonic()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    given = parser.parse_args()
    print(f"seed {given.seed}")
    with tempfile.TemporaryDirectory() as directory, running_redis("--appendonly", "yes") as server:
        Hour(Path(directory), server, given.minutes * 60, random.Random(given.seed)).run()


if __name__ == "__main__":
    sys.exit(main())
