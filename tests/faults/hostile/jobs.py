"""The application: queues of innocent jobs, which say what they meet, and queues of hostile ones (deeds.py)."""

from __future__ import annotations

import asyncio
import contextlib
import decimal
import faulthandler
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, Literal

import psutil

from lowkiq import Lowkiq, NewJob, Worker, current
from tests.faults.hostile.deeds import ANYWHERE, APART, BLOCKING, HERE, TENANT, write
from tests.faults.hostile.on_loop import ON_LOOP

#: Where jobs of each kind of queue run.
PLACES: Final[dict[str, Literal["thread", "process", "spawn"]]] = {
    "threads": "thread", "loop": "thread", "processes": "process", "new_processes": "spawn",
}  # fmt: skip
#: What follows from innocent jobs, each of one.
FOLLOWING: Final = "following"
#: Queues of innocent jobs.
INNOCENT: Final = tuple(f"innocent_{place}" for place in PLACES)
#: Queue → the deeds of its jobs.
HOSTILE: Final[dict[str, dict[str, Callable[[], Any]]]] = {
    "hostile_threads": ANYWHERE | BLOCKING,
    "hostile_loop": ANYWHERE | ON_LOOP,
    "hostile_processes": ANYWHERE | BLOCKING | APART,
    "hostile_new_processes": ANYWHERE | BLOCKING | APART,
}
SHARDS: Final = 8
#: Seconds of an innocent job.
WORK: Final = 0.005


def _begin() -> None:
    """What libraries do that think the process theirs."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    faulthandler.register(signal.SIGUSR1)
    write("boot", parents=[process.pid for process in psutil.Process().parents()])


app = Lowkiq(on_server_init=_begin, threads_per_node=3)


class Retried(Worker):
    shards_count = SHARDS

    def retry_in(self, retry_count: int) -> float:
        return 0.2


class Innocent(Retried):
    batch_size = 3

    @contextlib.contextmanager
    def noted(self, payloads_by_id: dict[str, list[int]]) -> Iterator[None]:
        rows = {"q": self.queue_name, "n": payloads_by_id, "try_": max(job.retry_count for job in current().jobs)}
        write("begin", **rows, meets=list(_foreign(payloads_by_id)))
        for stream in (sys.__stdout__, sys.__stderr__):  # not what a job has put in their place, and another has closed
            print(end="", file=stream, flush=True)  # which raises where it is closed
        try:
            yield
        except asyncio.CancelledError:  # by a job that has cancelled all tasks
            write("cancelled", **rows)
            raise
        write("end", **rows)
        if self.queue_name != FOLLOWING:
            for id, numbers in payloads_by_id.items():
                follow: list[NewJob] = [{"id": id, "payload": number, "score": number} for number in numbers]
                current().then(app.workers[FOLLOWING], follow, of=id)


class Blocking(Innocent):
    def perform(self, payloads_by_id: dict[str, list[Any]]) -> None:
        with self.noted(payloads_by_id):
            time.sleep(WORK)


class Awaiting(Innocent):
    async def perform(self, payloads_by_id: dict[str, list[Any]]) -> None:
        with self.noted(payloads_by_id):
            await asyncio.sleep(WORK)


def _foreign(payloads_by_id: dict[str, list[Any]]) -> Iterator[str]:
    """What this batch should not meet."""
    if (tenant := TENANT.get()) is not None:
        yield f"a context variable that is {tenant}"
    if decimal.getcontext().prec != 28:
        yield f"a precision of {decimal.getcontext().prec}"
    jobs = current().jobs
    if {job.id for job in jobs} != payloads_by_id.keys():
        yield f"the context of {[job.id for job in jobs]}"
    if any(job.checkpoint for job in jobs):
        yield "a checkpoint of another's"


class Hostile(Retried):
    perform_timeout = 2

    def act(self, id: str) -> Any:
        """Does its deed, at first."""
        with contextlib.suppress(FileExistsError):
            os.close(os.open(HERE / "done" / f"{self.queue_name} {id}", os.O_CREAT | os.O_EXCL, 0o600))
            write("deed", q=self.queue_name, id=id)
            return HOSTILE[self.queue_name][id.partition(":")[2]]()


class HostileBlocking(Hostile):
    def perform_one(self, id: str, payloads: list[Any]) -> None:
        self.act(id)


class HostileAwaiting(Hostile):
    async def perform_one(self, id: str, payloads: list[Any]) -> None:
        begun = self.act(id)
        if asyncio.iscoroutine(begun):
            await begun


def _register(base: type[Worker], name: str, isolation: Literal["thread", "process", "spawn"] = "thread") -> None:
    app.worker(queue_name=name, isolation=isolation)(type(name, (base,), {}))


for place, where in PLACES.items():
    _register(Awaiting if place == "loop" else Blocking, f"innocent_{place}", where)
    _register(HostileAwaiting if place == "loop" else HostileBlocking, f"hostile_{place}", where)
_register(Blocking, FOLLOWING)
