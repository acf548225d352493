"""
The demo: this repository's own history through four nodes, with a private Redis, checked, and nothing left behind.

Sets the stage (a Redis and nodes in a directory of their own), feeds `examples.tree_mirror`, watches, and clears up.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import NoReturn

import psutil
import redis
from rich.console import Console

from examples.history import Change, GitHistory, HistoryError, add_up
from examples.tree_copy import Copy
from lowkiq.errors import LowkiqError

#: Where `examples` can be imported from.
PROJECT = Path(__file__).parents[1]

NODES = 4

#: Besides LOWKIQ_*, what would point the nodes at a real deployment's Redis, or tell them that there are others.
ELSEWHERE = {"REDIS_URL", "NODE_NUMBER", "NUMBER_OF_NODES"}

#: Seconds the private Redis and the first node get to start.
BOOT = 60.0

#: Seconds without any progress after which the demo gives up.
STALLED = 60.0

#: Seconds the supervisor gets to drain: more than the nodes' own 25.
DRAIN = 40.0

#: Seconds between looks at the queue.
LOOK = 0.05

NO_HISTORY = """{error}

The demo rebuilds a tree of files from a git history, and found none here. Either get this project with `git clone`,
or take any other repository that you have:

    make demo REPO=/path/to/a/repository"""

HOW_TO_GO_ON = """How to go on:
  make test                                   run all the tests
  make demo REPO=/path/to/a/repository        another history, the longer the better
  docs/tutorial.md                            write a worker of your own
The same by hand, in two terminals; kill -9 any node while it works:
  .venv/bin/lowkiq-supervisor --nodes 4 -r examples.tree_mirror
  .venv/bin/python -m examples.tree_mirror feed --repo .
  .venv/bin/python -m examples.tree_mirror check --repo ."""

out = Console(highlight=False)


class DemoError(Exception):
    """The demo can't go on; the message says why."""


class Stage:
    """
    A private directory, a supervisor with a Redis and nodes in it, and this process's environment, set to that Redis
    and no other. A context manager: ready inside, drained at its end, and cleared however it ends.
    """

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes

    def __enter__(self) -> Stage:
        self._directory = Path(tempfile.mkdtemp(prefix="lowkiq-"))
        self._log = self._directory / "supervisor.log"
        self._set_environment()
        self._supervisor = self._start()
        try:
            self._wait_for_redis()
        except BaseException:
            self._clear()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._drain()
        finally:
            self._clear()

    def check(self) -> None:
        """Raise if the supervisor has ended."""
        if self._supervisor.poll() is not None:
            raise DemoError(self._report(f"the supervisor ended, with {self._supervisor.returncode}"))

    def _set_environment(self) -> None:
        for name in [name for name in os.environ if name.startswith("LOWKIQ_") or name in ELSEWHERE]:
            del os.environ[name]
        os.environ["LOWKIQ_STATE_DIR"] = str(self._directory)

    def _start(self) -> subprocess.Popen[bytes]:
        """Start it in a session of its own: Ctrl-C reaches only the demo, which then stops the nodes in order."""
        script = Path(sys.executable).with_name("lowkiq-supervisor")
        command = [str(script), "--nodes", str(self._nodes), "-r", "examples.tree_mirror"]
        with self._log.open("wb") as log:
            return subprocess.Popen(  # noqa: S603 - no shell
                command, cwd=PROJECT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def _wait_for_redis(self) -> None:
        socket = self._directory / "redis" / "redis.sock"
        deadline = time.monotonic() + BOOT
        while not socket.exists():
            self.check()
            if time.monotonic() > deadline:
                raise DemoError(self._report(f"no Redis within {BOOT:.0f} s"))
            time.sleep(LOOK)

    def _drain(self) -> None:
        """Let the nodes finish and stop, as a deployment would."""
        self._supervisor.terminate()
        try:
            code = self._supervisor.wait(DRAIN)
        except subprocess.TimeoutExpired:
            raise DemoError(self._report(f"the nodes did not stop within {DRAIN:.0f} s")) from None
        if code:
            raise DemoError(self._report(f"the supervisor stopped with {code}"))

    def _clear(self) -> None:
        """Stop what still runs: in order if it listens and the user lets it, by force if not."""
        with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
            self._supervisor.terminate()
            self._supervisor.wait(DRAIN)
        if self._supervisor.poll() is None:
            self._kill_all()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _kill_all(self) -> None:
        """Kill the supervisor first, so that it starts nothing anew."""
        with contextlib.suppress(psutil.NoSuchProcess):
            supervisor = psutil.Process(self._supervisor.pid)
            for process in [supervisor, *supervisor.children(recursive=True)]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
        self._supervisor.wait()

    def _report(self, what: str) -> str:
        """Report of what happened, with the end of the supervisor's log."""
        return "\n".join([what, *self._log.read_text(errors="replace").splitlines()[-20:]])


def play(changes: list[Change], stage: Stage) -> bool:
    """Feed the changes while the nodes work, wait for the end, and print the verdict: whether it is right."""
    # Not before: the application takes its Redis from the environment, which the stage has set.
    from examples import tree_mirror  # noqa: PLC0415

    copy = Copy(tree_mirror.app.redis())
    started = time.monotonic()
    with tree_mirror.progress(out) as bar:
        pushed, applied = (bar.add_task(name, total=len(changes)) for name in ("pushed ", "applied"))

        def look() -> int:
            stage.check()
            done = copy.counts().applied
            bar.update(applied, completed=done)
            return done

        def advance(count: int) -> None:
            bar.advance(pushed, count)
            look()

        tree_mirror.push(changes, advance)
        _wait_until_nothing_is_left(tree_mirror.left, look)
    seconds = time.monotonic() - started
    verdict = tree_mirror.Verdict.on(add_up(changes))
    verdict.show(out)
    rate = len(changes) / seconds
    out.print(f"{len(changes):,} events in {seconds:.2f} s, the nodes' start included: {rate:,.0f} events/s")
    return verdict.right and not verdict.buried


def _wait_until_nothing_is_left(left: Callable[[], int], look: Callable[[], int]) -> None:
    """Look now and then, for as long as there is progress."""
    done, deadline = -1, 0.0
    while jobs := left():
        before, done = done, look()
        if done != before:
            deadline = time.monotonic() + STALLED
        elif time.monotonic() > deadline:
            raise DemoError(f"{jobs:,} jobs are left, and none was done in {STALLED:.0f} s")
        time.sleep(LOOK)
    look()


def main() -> int:
    """Run the demo: 0 when the copy is right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repo", type=Path, default=Path(), help="the git repository (here)")
    parser.add_argument("--nodes", type=int, default=NODES, help="how many nodes (%(default)s)")
    arguments = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        return _run(arguments.repo.resolve(), arguments.nodes)
    except HistoryError as error:
        return _fail(NO_HISTORY.format(error=error))
    except (DemoError, LowkiqError, redis.RedisError) as error:
        return _fail(f"The demo failed: {error}")
    except KeyboardInterrupt:
        out.print("Interrupted; nothing is left running.")
        return 130


def _run(repo: Path, nodes: int) -> int:
    changes = GitHistory.of(repo).changes()
    if not changes:
        raise HistoryError(f"{repo} has commits, and no file in any of them")
    out.print(
        f"The history of {repo}, {len(changes):,} changes, through {nodes} nodes with a private Redis:", soft_wrap=True
    )
    with Stage(nodes) as stage:
        right = play(changes, stage)
    if not right:
        return _fail("The copy is NOT right.")
    out.print(
        f"The copy is right: every path as in HEAD, each in order.\n\n{HOW_TO_GO_ON}", markup=False, soft_wrap=True
    )
    return 0


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _fail(message: str) -> int:
    out.print(message, markup=False, soft_wrap=True)
    return 1


if __name__ == "__main__":
    sys.exit(main())
