"""
Goes through the failpoints of a node or of a producer, several at a time, and prints what it finds as lines of JSON.

    python -m tests.faults.failpoints SOCKET KIND HOW

Processes are forked from this one, which has no threads and no connections: an interpreter each would take too long.
"""

from __future__ import annotations

import functools
import gc
import importlib.metadata
import itertools
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from lowkiq import log
from lowkiq.environment import ExitCode
from lowkiq.queue import scripts
from tests.faults.failpoints.following import FollowingScenario
from tests.faults.failpoints.people import People
from tests.faults.failpoints.scenario import Scenario, in_child
from tests.faults.failpoints.tripwire import Tripwire, make_scripts_unknown

KINDS = (
    "node",
    "async node",
    "limited node",
    "limited async node",
    "impatient node",
    "moving node",
    "following node",
    "following producer",
    "producer",
    "awaiting producer",
    "people",
)
#: Kinds that are struck only at the calls which others do not make, or make for less.
OWN = {
    # Its heartbeat, its chores, its boot and how it keeps its leases are those of a node with threads.
    "async": (
        "claim",
        "settle",
        "peek",
        "isolate",
        "finish",
        "checkpoint",
        "cancels",
        "rest",
        "release",
        "SET",
        "BLPOP",
        "UNLINK",
    ),
    "impatient": ("abandon",),
    "limited": ("places", "rate"),
    "following": ("relay", "receive", "ask_again", "firing", "fire", "settle", "push", "wait"),
    "moving": (
        "feed",
        "mark_moved",
        "pack",
        "adopt",
        "drop_moved",
        "close_moved",
        "relayout",
        "SET",
        "renew_away",
        "restore_away",
    ),
}
#: Commands and scripts that change nothing. A process that is killed at one of them leaves what it leaves when it is
#: killed at the writes around it, and a lost request is to it what a lost reply is: of each, the first is struck in
#: every way, and all as THE_OTHER_WAY.
READS = {
    "CONFIG", "GETRANGE", "HEXISTS", "HGET", "HGETALL", "HLEN", "INFO", "LINDEX", "TIME", "ZREVRANGE", "peek", "stats",
}  # fmt: skip
THE_OTHER_WAY = "reply lost"
#: Calls that a node makes again and again while it waits for its turn, and how many of each are struck: the longer a
#: machine takes, the more of them there are. And how many shards a queue has, which is read before all that people do.
POLLED, MOST_POLLED = {"SET", "rate", "places", "keep_places", "renew_away", "restore_away", "HGET"}, 12
#: A call that a server which knows the scripts never sees.
LOADS = "SCRIPT"
#: Runs at a time: enough to fill two cores, and no more, since what is tested beside them has to get on, too.
AT_ONCE = int(os.environ.get("LOWKIQ_TEST_FAILPOINTS_AT_ONCE", "6"))
#: Runs before, to learn what calls there are.
SURVEYS = 2
#: Which calls come is a matter of who is first: those that have not come are waited for in so many rounds.
ROUNDS = 10
#: Seconds after which a process is stuck.
PATIENCE = 600.0


class Run:
    """One failpoint: the process that is struck, and what comes after it. `advance` is called when one has ended."""

    def __init__(
        self, socket: str, log: Path, kind: str, call: str | None = None, ordinal: int = 0, how: str = ""
    ) -> None:
        namespace = f"failpoint{os.getpid()}-{log.stem}"
        self.scenario = (
            FollowingScenario(socket, namespace, is_counted=kind == "following node")
            if kind.startswith("following")
            else Scenario(
                socket,
                namespace,
                is_async="async" in kind,
                is_limited="limited" in kind,
                is_moved="moving" in kind,
            )
        )
        self.kind, self.call, self.ordinal, self.how, self.log = kind, call, ordinal, how, log
        self.pid, self.status, self.deadline = 0, 0, 0.0
        self.calls: dict[str, int] = {}
        self.wrongs: list[str] = []
        self.is_hit = False
        self._steps = (
            self._people() if kind == "people" else self._producer() if kind.endswith("producer") else self._node()
        )

    def advance(self) -> bool:
        """Goes on until the next process runs. False: all has been done."""
        return next(self._steps, False)

    def _node(self) -> Iterator[bool]:
        is_impatient = self.kind == "impatient node"
        self.scenario.push()
        run = self.scenario.run_impatient_node if is_impatient else self.scenario.run_node
        yield self._fork(lambda: self._struck(partial(run, "first")))
        most_twice = self.scenario.claimed()
        self._judge_first(ExitCode.FORCED_KILL if is_impatient else ExitCode.DRAINED)
        self.is_second_needed = self.is_killed or is_impatient
        if self.is_second_needed:
            yield self._fork(lambda: self.scenario.run_node("second", ("first",)))
            self._judge_second()
        self.wrongs += self._at_the_end("second" if self.is_second_needed else "first", most_twice)

    def _producer(self) -> Iterator[bool]:
        is_awaiting = self.kind == "awaiting producer"
        run = self.scenario.run_awaiting_producer if is_awaiting else self.scenario.run_producer
        yield self._fork(lambda: self._struck(run))
        self._judge_first(0)
        if self.is_killed:
            self.scenario.push()
        yield self._fork(lambda: self.scenario.run_node("second"))
        self._judge_second()
        self.wrongs += self._at_the_end("second", 0)

    def _people(self) -> Iterator[bool]:
        people = People(self.scenario)
        yield self._fork(lambda: self._struck(people.run))
        self._judge_first(0)
        self.wrongs += people.go_on()
        yield self._fork(lambda: self.scenario.run_node("second"))
        self._judge_second()
        self.wrongs += people.look_back()
        self.wrongs += self._at_the_end("second", 0)

    def _at_the_end(self, last: str, most_twice: int) -> list[str]:
        return [*People(self.scenario).tags_wrong(), *self.scenario.wrongs(last, most_twice)]

    @property
    def is_killed(self) -> bool:
        return os.WIFSIGNALED(self.status) and os.WTERMSIG(self.status) == signal.SIGKILL

    def _fork(self, run: Any) -> bool:
        self.pid, self.deadline = in_child(str(self.log), run), time.monotonic() + PATIENCE
        return True

    def _struck(self, run: Any) -> int:
        if self.call is None or LOADS in self.call:
            make_scripts_unknown(self.scenario.namespace)
        tripwire = Tripwire(self.call, self.ordinal, self.how)
        tripwire.install()
        code: int = run()
        self.log.with_suffix(".calls").write_text(json.dumps(tripwire.calls))
        return code

    def _judge_first(self, code: int) -> None:
        calls = self.log.with_suffix(".calls")
        self.calls = json.loads(calls.read_text()) if calls.exists() else {}
        self.is_hit = self.is_killed or self.calls.get(self.call or "", 0) >= self.ordinal
        if not self.is_killed and self.status != code << 8:
            self.wrongs.append(f"the first process ended with status {self.status}")
        self._judge_time()

    def _judge_second(self) -> None:
        if self.status:
            self.wrongs.append(f"the second process ended with status {self.status}")
        self._judge_time()

    def _judge_time(self) -> None:
        if time.monotonic() > self.deadline:
            self.wrongs.append(f"it was stuck for {PATIENCE} s")

    def told(self) -> dict[str, Any]:
        output = self.log.read_text("utf-8", "replace") if self.wrongs else ""
        return {
            "call": self.call, "number": self.ordinal, "hit": self.is_hit, "calls": self.calls,
            "wrongs": self.wrongs, "log": output[-6000:],
        }  # fmt: skip


def run_all(runs: Iterable[Run]) -> Iterator[Run]:
    """Runs them, AT_ONCE at a time, and gives each as it is done."""
    waiting = list(runs)
    running: dict[int, Run] = {}
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            run = waiting.pop()
            run.advance()
            running[run.pid] = run
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            _kill_stuck(running.values())
            time.sleep(0.005)
            continue
        run = running.pop(pid)
        run.status = status
        if run.advance():
            running[run.pid] = run
        else:
            print(json.dumps(run.told()), flush=True)
            yield run


def most(call: str, count: int, how: str) -> int:
    """At how many of its calls a process is struck in this way."""
    names = set(call.split("+"))
    if names & POLLED:
        count = min(count, MOST_POLLED)
    return count if how == THE_OTHER_WAY or not names <= READS else 1


def _kill_stuck(runs: Iterable[Run]) -> None:
    for run in runs:
        if time.monotonic() > run.deadline:
            os.kill(run.pid, signal.SIGKILL)


def _prepare() -> None:
    """Does once what each forked process would do anew, which was half of what it took."""
    log.configure()
    for flags in (True, False):
        scripts.load(flags=flags)
    # redis-py parses the metadata of its package for each client.
    importlib.metadata.version = functools.cache(importlib.metadata.version)
    gc.collect()
    gc.freeze()


def main(socket: str, kind: str, how: str, *must: str) -> None:
    """Strikes at all calls that there are, and again until each of those has come that `must` be struck."""
    _prepare()
    with tempfile.TemporaryDirectory(prefix="lowkiq-failpoints-") as directory:
        logs = (Path(directory, f"{number}.log") for number in itertools.count())
        # Several times, since no two runs make quite the same calls.
        calls: Counter[str] = Counter()
        for run in run_all([Run(socket, next(logs), kind) for _ in range(SURVEYS)]):
            calls |= Counter(run.calls)
        own = [names for kind_of, names in OWN.items() if kind.startswith(kind_of)]
        if own:
            calls = Counter({call: count for call, count in calls.items() if any(name in call for name in own[0])})
        points = [(call, ordinal) for call in sorted(calls) for ordinal in range(1, most(call, calls[call], how) + 1)]
        missing = {*must}
        for _ in range(ROUNDS):
            for run in run_all([Run(socket, next(logs), kind, *point, how) for point in points]):
                missing -= {run.call} if run.is_hit else set()
            points = [(call, 1) for call in sorted(missing)]


main(*sys.argv[1:])
