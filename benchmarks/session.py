"""Session: a contender on a server of its own, for one or several measurements."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import redis

from benchmarks.contender import Contender, ContenderFailed
from benchmarks.tally import Tally
from tests.support import wait_until


class Use(NamedTuple):
    """Resources that the server has used so far."""

    cpu_seconds: float
    commands: float
    memory: int


class Rates(NamedTuple):
    """What is used a second."""

    #: Of one core, by Redis and by the workers.
    redis: float
    workers: float
    commands: float


class Session:
    """Processes of a contender, and their reports. Made by `session`."""

    def __init__(self, contender: Contender, url: str, stack: ExitStack, given: dict[str, str]) -> None:
        self._contender = contender
        self._stack = stack
        self.tally = Tally()
        stack.callback(self.tally.close)
        self._environment = contender.environment_with({"BENCH_REDIS": url, "BENCH_REPORT": self.tally.address} | given)
        self._redis = stack.enter_context(redis.Redis.from_url(url)) if contender.on_redis else None
        self._directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="lowkiq-bench-"))
        self._log = stack.enter_context((Path(self._directory) / "log").open("w+", encoding="utf-8"))
        self._workers: list[subprocess.Popen[str]] = []
        self._producer = self._start("produce", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._answer()

    def produce(self, do: str, **numbers: float) -> dict[str, float]:
        """Tells the producer to enqueue; its answer: how many jobs in how many seconds."""
        assert self._producer.stdin
        self._producer.stdin.write(json.dumps({"do": do, **numbers}) + "\n")
        self._producer.stdin.flush()
        return self._answer()

    def start_workers(self, processes: int) -> None:
        """Starts worker processes, which differ in their number only."""
        for number in range(processes):
            numbers = {"NODE_NUMBER": str(number), "NUMBER_OF_NODES": str(processes)}
            self._workers.append(self._start("work", numbers, stdout=subprocess.DEVNULL))

    def stop_workers(self) -> None:
        """Ends the worker processes."""
        while self._workers:
            kill(self._workers.pop())

    def wait_for(self, jobs: float, limit: float) -> bool:
        """Returns True if so many are done in time; the workers must live."""
        try:
            wait_until(lambda: self.tally.done >= jobs or self._check_workers(), within=limit)
        except TimeoutError:
            return False
        return True

    def use(self) -> Use | None:
        """Resources that Redis has used so far; None without a Redis."""
        if not self._redis:
            return None
        info: Any = self._redis.info()
        cpu = info["used_cpu_user"] + info["used_cpu_sys"]
        return Use(cpu, info["total_commands_processed"], info["used_memory"])

    def rates(self, seconds: float) -> Rates:
        """What is used a second, over so many; zero of a Redis that there is not."""
        nothing = Use(0, 0, 0)
        began, before, worked = time.monotonic(), self.use() or nothing, self._cpu_seconds()
        time.sleep(seconds)
        after, by_workers, taken = self.use() or nothing, self._cpu_seconds() - worked, time.monotonic() - began
        by_redis, commands = after.cpu_seconds - before.cpu_seconds, after.commands - before.commands
        return Rates(by_redis / taken, by_workers / taken, commands / taken)

    def wait_for_calm(self) -> None:
        """Workers have what they need, and have looked at it: the rate of commands no longer falls."""
        last = float("inf")
        for _ in range(30):
            rate = self.rates(2.0).commands
            if rate > 0.9 * last:
                return
            last = rate

    def rss(self) -> int:
        """Bytes that the workers hold, with all their children."""
        return sum(member.memory_info().rss for member in self._processes())

    def _cpu_seconds(self) -> float:
        times = [member.cpu_times() for member in self._processes()]
        return float(sum(each.user + each.system for each in times))

    def _processes(self) -> Iterator[psutil.Process]:
        for worker in self._workers:
            process = psutil.Process(worker.pid)
            yield process
            yield from process.children(recursive=True)

    def _check_workers(self) -> bool:
        for worker in self._workers:
            if worker.poll() is not None:
                raise self._failed(f"a worker ended with {worker.returncode}")
        return False

    def _failed(self, what: str) -> ContenderFailed:
        self._log.seek(0)
        last = [line for line in self._log if line.strip()][-1:]
        return ContenderFailed(": ".join((what, *last)).strip())

    def _start(self, what: str, more: dict[str, str] | None = None, **pipes: int) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*self._contender.command, what],
            env=self._environment | (more or {}),
            stdin=pipes.get("stdin", subprocess.DEVNULL),
            stdout=pipes["stdout"],
            stderr=self._log,
            cwd=self._directory,
            text=True,
            start_new_session=True,
        )
        self._stack.callback(kill, process)
        return process

    def _answer(self) -> dict[str, float]:
        assert self._producer.stdout
        for line in self._producer.stdout:
            if line.startswith("{"):
                answer: dict[str, float] = json.loads(line)
                return answer
        raise self._failed(f"the producer ended with {self._producer.wait()}")


@contextmanager
def session(
    contender: Contender, *, job: str = "blank", processes: int = 1, batch: int = 1, **given: str
) -> Iterator[Session]:
    """
    A fresh server and a producer; workers start when told.

    Args:
        job: blank, io or cpu.
        processes: how many workers there will be.
        batch: ids that a call of user code gets, where the contender can do that.
    """
    numbers = {"BENCH_JOB": job, "BENCH_PROCESSES": str(processes), "BENCH_BATCH": str(batch)}
    with contender.backend() as url, ExitStack() as stack:
        made = Session(contender, url, stack, numbers | given)
        yield made
        made.stop_workers()


def kill(process: subprocess.Popen[str]) -> None:
    """Ends a process with all its children, at once: what it leaves behind goes with its server."""
    with suppress(psutil.NoSuchProcess):
        for child in psutil.Process(process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                child.kill()
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe:
            with suppress(BrokenPipeError):
                pipe.close()
