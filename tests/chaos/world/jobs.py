"""The application that the supervisors run: jobs that do what their payloads say, and record it outside Redis."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil

from lowkiq import Bury, Decision, Job, Lowkiq, NewJob, PartialFailure, RetryIn, Snooze, Worker, current
from lowkiq.errors import CheckpointFailed
from tests.chaos.journal import Journal, now
from tests.chaos.world import queues
from tests.chaos.world.database import Database

HERE = Path(os.environ["CHAOS_DIRECTORY"])

if os.environ.get("CHAOS_MUTANT"):
    from tests import mutants

    mutants.install(os.environ["CHAOS_MUTANT"])

#: Seconds between signs of life, and how late one must be to count as a stall of the machine.
ALIVE, STALL = 0.05, 0.3
#: Seconds in which a signal to stop has surely stopped this process.
STOPPING = 0.02
#: Seconds that a job sleeps that is to be stopped.
OVERRUN = 4


class StaleToken(Exception):
    """The database has seen a higher token."""


class Process:
    """This node: its name in the history, and its signs of life."""

    def __init__(self) -> None:
        self.name = ""
        self.runs = itertools.count()
        self._alarms: list[subprocess.Popen[bytes]] = []

    def begin(self) -> None:
        """Starts the journal in the node's own process: the module may have been imported before the fork."""
        self.name = f"{os.getpid()}-{now():.3f}"
        self._journal = Journal(HERE / "nodes" / f"{self.name}.jsonl")
        self._journal.write(
            "boot", p=self.name, pid=os.getpid(), parent=os.getppid(), via=os.environ["CHAOS_VIA"], helps=_helps()
        )
        threading.Thread(target=self._live, daemon=True).start()

    def note(self, kind: str, **details: Any) -> None:
        """Writes to its journal."""
        self._journal.write(kind, **details)

    def die(self) -> None:
        self._journal.write("die")
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(10)

    def pause(self, seconds: float) -> None:
        """All of this process, as when a machine is suspended, at a moment that no other process could hit."""
        since = now()
        command = f"sleep {seconds}; kill -CONT {os.getpid()}"
        self._alarms.append(subprocess.Popen(["/bin/sh", "-c", command], start_new_session=True))
        # Before, since it may be killed meanwhile.
        self._journal.write("stall", why="pause by a job", since=since, until=since + seconds)
        os.kill(os.getpid(), signal.SIGSTOP)
        while now() - since < STOPPING:
            pass  # without letting other threads go first, when all go on
        self._alarms = [alarm for alarm in self._alarms if alarm.poll() is None]

    def _live(self) -> None:
        alive = os.open(HERE / "nodes" / f"{self.name}.alive", os.O_WRONLY | os.O_CREAT, 0o600)
        last = now()
        while True:
            time.sleep(ALIVE)
            os.pwrite(alive, b"%020.6f" % now(), 0)
            last, before = now(), last
            if last - before > STALL:
                self._journal.write("stall", since=before, until=last)


def _helps() -> int | None:
    """The node of a helper process, whose parent is the node's fork server."""
    parent = psutil.Process(os.getppid())
    return parent.ppid() if "fork server" in " ".join(parent.cmdline()) else None


process = Process()
database = Database(HERE / "rows")
app = Lowkiq(on_server_init=process.begin)


class Run:
    def __init__(self, queue: str, payloads_by_id: dict[str, list[dict[str, Any]]]) -> None:
        self._context = current()
        self._queue = queue
        self._payloads = payloads_by_id if queue != queues.RECURRING else _times(self._context.jobs)
        self._name = f"{process.name}.{next(process.runs)}"
        self._attempts = {job.id: job.retry_count + 2 for job in self._context.jobs}
        #: Checkpoints of earlier runs.
        self._kept = {job.id: json.loads(job.checkpoint) for job in self._context.jobs if job.checkpoint}
        self._failed: dict[str, BaseException | str] = {}
        for id, payloads in payloads_by_id.items():
            if not all(isinstance(payload, dict) or queue == queues.RECURRING for payload in payloads):
                process.note("garbled", q=queue, id=id, got=repr(payloads)[:200])
        self._pause = 0.0
        self._open: dict[str, None] = {}

    def __call__(self) -> None:
        with self._recording():
            for seconds in self._steps():
                time.sleep(seconds)

    async def on_loop(self) -> None:
        with self._recording():
            for seconds in self._steps():
                await asyncio.sleep(seconds)

    @contextlib.contextmanager
    def _recording(self) -> Iterator[None]:
        try:
            self._begin()
            yield
            self._commit()
        except BaseException as error:
            for id in self._open:
                self._write(id, "fail", why=type(error).__name__)
            raise
        if self._failed:
            raise PartialFailure(self._failed)

    def _begin(self) -> None:
        for id, payloads in self._payloads.items():
            numbers, kept = [payload["n"] for payload in payloads], self._kept.get(id)
            wall = time.time()
            if self._write(id, "begin", n=numbers, try_=self._attempts[id], kept=kept, wall=wall):
                self._open[id] = None
            else:
                self._failed[id] = StaleToken()

    def _steps(self) -> Iterator[float]:
        """
        Seconds to sleep, and then on. Nothing of the batch is written before all of it is known to succeed: a failed
        batch repeats as a whole.
        """
        for id in list(self._open):
            yield max(payload["s"] for payload in self._payloads[id])
            if self._payloads[id][0].get("do") == "overrun" and self._attempts[id] == 1:
                yield from self._overrun()
            # Exhausted retries bury the lowest payload, so that one does what makes it fail, and no other.
            self._act(id, self._payloads[id][0])

    def _overrun(self) -> Iterator[float]:
        """Sleeps until it is stopped; on a thread, until it is asked to stop."""
        until = now() + OVERRUN
        while now() < until and not (self._context.worker.perform_timeout and self._context.cancelled):
            yield 0.05

    def _act(self, id: str, payload: dict[str, Any]) -> None:
        what, attempt = payload.get("do"), self._attempts[id]
        if what in {"snooze", "retry in", "bury"} and (decision := self._decide(id, payload)):
            del self._open[id]
            self._failed[id] = decision
            self._write(id, "fail", why=type(decision).__name__)
            return
        if what == "keep":
            with contextlib.suppress(CheckpointFailed):
                self._context.checkpoint(payload["n"], id=id)
        is_first = what == "fail once" and database.first_time(f"{self._queue}.{id}.{payload['n']}")
        if is_first or (what in {"fail", "keep"} and attempt <= payload["tries"]):
            del self._open[id]
            self._failed[id] = ValueError("is to fail")
            self._write(id, "fail", why="failed")
        elif what == "raise" and attempt <= payload["tries"]:
            raise ValueError("the whole batch is to fail")
        elif what == "pause" and database.first_time(f"{self._queue}.{id}.{payload['n']}"):
            self._pause = payload["for"]
            if payload["n"] % 2:
                process.pause(self._pause)
                self._pause = 0.0
        elif what == "exit" and attempt == 1:
            sys.exit(1)
        elif what == "kill" or (what == "kill once" and database.first_time(f"{self._queue}.{id}.{payload['n']}")):
            process.die()

    def _decide(self, id: str, payload: dict[str, Any]) -> Decision | None:
        """A decision of the job; only the first of a snooze, whose attempts do not count."""
        match payload["do"]:
            case "bury":
                return Bury("is to be buried")
            case "snooze" if database.first_time(f"{self._queue}.{id}.{payload['n']}"):
                return Snooze(0.2)
            case "retry in" if self._attempts[id] <= payload["tries"]:
                return RetryIn(0.1)
        return None

    def _commit(self) -> None:
        for id in list(self._open):
            del self._open[id]
            numbers = [payload["n"] for payload in self._payloads[id]]
            if not self._write(id, "commit", n=numbers):
                self._failed[id] = StaleToken()
            elif self._queue in queues.FOLLOWING:
                follow: list[NewJob] = [{"id": id, "payload": {"n": n, "s": 0}, "score": n} for n in numbers]
                self._context.then(app.workers[queues.FOLLOWING[self._queue]], follow, of=id)
        if self._pause:
            process.pause(self._pause)

    def _write(self, id: str, kind: str, **details: Any) -> bool:
        accepted = database.write(self._queue, id, kind, self._context.epoch, r=self._name, **details)
        if not accepted:
            # Somebody else is at that id, so by now this node must know that its lease is over.
            lost = self._context.lease_lost
            database.write(self._queue, id, "ended", self._context.epoch, r=self._name, lost=int(lost))
        return accepted


def _times(jobs: Sequence[Job]) -> dict[str, list[dict[str, Any]]]:
    """Payloads of jobs that recur, numbered by the milliseconds for which they are."""
    return {
        job.id: [
            {"n": round((payload["due"] if payload else score) * 1_000), "s": 0.03}
            for payload, score in zip(job.payloads, job.scores, strict=True)
        ]
        for job in jobs
    }


def _register(queue: queues.Queue) -> None:
    class Jobs(Worker):
        queue_name = queue.name
        shards_count = queue.shards_count
        batch_size = queue.batch_size
        concurrency = queue.concurrency
        max_running = queue.max_running
        max_retry_count = 0 if queue.blocks else queues.MAX_RETRY_COUNT
        when_exhausted = "block" if queue.blocks else "bury"

        def retry_in(self, retry_count: int) -> float:
            return 0.1 * (retry_count + 1)

        perform_timeout = queue.perform_timeout
        rate = queue.rate
        isolation = "process" if queue.runs == "in processes" else "thread"

        async def on_loop(self, payloads_by_id: dict[str, list[Any]]) -> None:
            with contextlib.suppress(FileNotFoundError):
                await Run(self.queue_name, payloads_by_id).on_loop()

        def on_thread(self, payloads_by_id: dict[str, list[Any]]) -> None:
            with contextlib.suppress(FileNotFoundError):  # the world is over
                Run(self.queue_name, payloads_by_id)()

        perform: Any = on_loop if queue.runs == "as tasks" else on_thread

    app.worker(Jobs)


for each in queues.LOADS[os.environ["CHAOS_LOAD"]].queues:
    _register(each)
