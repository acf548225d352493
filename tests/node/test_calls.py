"""How many of our functions a job calls, and how many commands: on a loaded machine, too, that tells of lost speed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from types import FrameType
from typing import Any

import pytest

from lowkiq import Lowkiq, Worker, clock
from lowkiq.node import threads
from lowkiq.node.worker_thread import WorkerThread
from lowkiq.queue.bell import ListBell
from tests.node.driven import acquire, runtime_of

pytestmark = pytest.mark.skipif(
    sys.version_info[:2] != (3, 11) or sys.implementation.name != "cpython", reason="other Pythons call otherwise"
)

JOBS = 100
#: What was measured when something was last made quicker, and 3 %: whoever needs more says why, and changes it here.
MOST_OF_A_LONE_JOB, MOST_OF_A_BLANK_JOB, MOST_COMMANDS = 152.0, 0.365, 21.0


class Calls:
    """Counts calls of functions of this package, by this thread."""

    def __init__(self) -> None:
        self.count = 0

    @contextmanager
    def counted(self, function: Any) -> Iterator[None]:
        sys.setprofile(function)
        try:
            yield
        finally:
            sys.setprofile(None)

    def note(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and "/lowkiq/" in frame.f_code.co_filename:
            self.count += 1


@pytest.fixture
def calls() -> Calls:
    return Calls()


def thread_of(app: Lowkiq, worker: type[Worker[Any]], monkeypatch: pytest.MonkeyPatch) -> WorkerThread:
    """A thread that is alone, and not started; its time hardly passes, so whatever runs is quick."""
    monkeypatch.setattr(clock, "monotonic", count(clock.monotonic(), 1e-7).__next__)
    runtime = runtime_of(app)
    leases = threads.leases_of(runtime, worker)
    pool = threads._make_pool(runtime, 0, leases)
    for lease in leases:
        pool.wake(acquire(lease), 0.0)
    return WorkerThread(0, pool, runtime)


def test_a_lone_job_calls_no_more_than_it_did(app: Lowkiq, calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = []

    @app.worker(shards_count=1)
    def lone(id: str, payloads: list[Any]) -> None:
        ran.append(id)

    wait = ListBell._wait

    def push_and_wait(bell: ListBell, *what: Any) -> Any:
        sys.setprofile(None)
        lone.perform_async([{"id": str(len(ran)), "payload": 1}])
        sys.setprofile(calls.note)
        return wait(bell, *what)

    thread = thread_of(app, lone, monkeypatch)
    thread._step()
    monkeypatch.setattr(ListBell, "_wait", push_and_wait)
    with calls.counted(calls.note):
        thread._step()
        calls.count, before = 0, commands(app)
        for _ in range(JOBS):
            thread._step()  # settles it, and opens the next claim
            thread._step()  # waits for the next one, which comes with the ring
    assert len(ran) == JOBS + 1
    assert calls.count / JOBS <= MOST_OF_A_LONE_JOB
    assert (commands(app) - before) / JOBS <= MOST_COMMANDS


def test_a_blank_job_calls_no_more_than_it_did(app: Lowkiq, calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = []

    @app.worker(shards_count=1)
    def blank(id: str, payloads: list[Any]) -> None:
        ran.append(id)

    thread = thread_of(app, blank, monkeypatch)
    thread.pool.leases[0].claim_size.learn(1000, 0.0)
    blank.perform_async([{"id": str(number), "payload": number} for number in range(20 * JOBS)])
    with calls.counted(calls.note):
        while len(ran) < 20 * JOBS:
            thread._step()
    assert calls.count / len(ran) <= MOST_OF_A_BLANK_JOB


def commands(app: Lowkiq) -> int:
    return sum(row["calls"] for name, row in app.redis().info("commandstats").items() if name != "cmdstat_info")
