"""
Runs a contender's app: `python -m benchmarks.peers.apps.stage huey_app produce`, or `work`. The app is a module of
`enqueue_one(id, payload)` and `work()`; if there is a call for many, of `enqueue_many(jobs)`; if its functions are
coroutines, maybe of `connect()`.

`produce` reads a command a line and answers each with a line, both JSON:

    bulk    queue so many jobs, as fast as the contender can        → jobs, seconds
    small   the same, with payloads of ten bytes                    → jobs, seconds
    sized   the same, with payloads of so many bytes                → jobs, seconds
    one id  the same, all to one id                                 → jobs, seconds
    hot     the same, with 90 % of the pushes to 1 % of the ids     → jobs, seconds
    single  one call a job, for so many seconds                     → jobs, seconds
    idle    so many single jobs, some time apart, that tell their latency
    paced   so many a second for so many seconds; some tell their latency
    mixed   single jobs at random times (Poisson), so many a second for so many seconds, that tell their latency: each
            sleeps 1 ms, but so many in a thousand (`slow`) 200 ms
    sleep   one job that sleeps for so many seconds and tells its latency

The standard library only: it runs in every contender's environment.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import itertools
import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

#: Threads or coroutines of a worker process.
THREADS: Final = 5
#: Jobs in a call that takes many.
CHUNK: Final = 10_000
#: Calls under way at a time of a contender of coroutines that has no call for many.
AT_ONCE: Final = 100
#: Seconds between two single jobs, so that a worker goes idle in between.
PAUSES: Final = (0.01, 0.03)
#: Above so many a second, jobs go in bulk, every so many seconds.
SINGLE_RATE: Final = 2_000
TICK: Final = 0.005
#: Seconds that jobs of a mixed load sleep: most of them, and the slow ones.
QUICK, SLOW = 0.001, 0.2
#: Jobs a second that tell their latency: enough for a percentile, few enough to cost nothing.
STAMPED_RATE: Final = 1_000

#: An id of ten bytes and a payload.
Job = tuple[str, Any]
#: Jobs to enqueue at once, a job to enqueue alone, seconds to sleep; at last the answer.
Step = list[Job] | Job | float | dict[str, float]


def redis_url() -> str:
    """The contender's server."""
    return os.environ["BENCH_REDIS"]


def main(name: str, role: str) -> None:
    """Produces with the app of that name, or works until it is ended."""
    app = importlib.import_module(f"benchmarks.peers.apps.{name}")
    if role == "work":
        app.work()
    elif inspect.iscoroutinefunction(app.enqueue_one):
        many = getattr(app, "enqueue_many", partial(_some_at_once, app.enqueue_one))
        asyncio.run(_produce_async(app.enqueue_one, many, getattr(app, "connect", None)))
    else:
        many = getattr(app, "enqueue_many", partial(_one_by_one, app.enqueue_one))
        for step in _steps():
            _take(step, app.enqueue_one, many)


def become(*command: str) -> None:
    """Goes on as the contender's own worker command, found beside this Python."""
    program = os.path.join(os.path.dirname(sys.executable), command[0])  # noqa: PTH118, PTH120 (not resolved: a venv's)
    os.execv(program, [program, *command[1:]])


def _one_by_one(enqueue_one: Callable[..., Any], jobs: list[Job]) -> None:
    for each in jobs:
        enqueue_one(*each)


async def _some_at_once(enqueue_one: Callable[..., Any], jobs: list[Job]) -> None:
    for first in range(0, len(jobs), AT_ONCE):
        await asyncio.gather(*(enqueue_one(*each) for each in jobs[first : first + AT_ONCE]))


def _take(step: Step, enqueue_one: Callable[..., Any], enqueue_many: Callable[..., Any]) -> None:
    if isinstance(step, tuple):
        enqueue_one(*step)
    elif isinstance(step, list):
        enqueue_many(step)
    elif isinstance(step, float):
        time.sleep(step)
    else:
        print(json.dumps(step), flush=True)


async def _produce_async(one: Callable[..., Any], many: Callable[..., Any], connect: Callable[[], Any] | None) -> None:
    if connect:
        await connect()
    for step in _steps():
        if isinstance(step, tuple):
            await one(*step)
        elif isinstance(step, list):
            await many(step)
        elif isinstance(step, float):
            await asyncio.sleep(step)
        else:
            print(json.dumps(step), flush=True)


def _steps() -> Iterator[Step]:
    numbers = itertools.count()
    print("{}", flush=True)  # it is up
    for line in sys.stdin:
        command = json.loads(line)
        started = time.monotonic()
        before = next(numbers)
        yield from _obey(command, started, numbers)
        taken = time.monotonic() - started
        yield {"jobs": command.get("jobs") or next(numbers) - before - 1, "seconds": taken}


def _obey(command: dict[str, Any], started: float, numbers: Iterator[int]) -> Iterator[Step]:
    jobs, seconds, rate = (command.get(key, 0) for key in ("jobs", "seconds", "rate"))
    match command["do"]:
        case "hot":
            yield from _hot(jobs)
        case "single":
            yield from _single(started + seconds, numbers)
        case "idle":
            yield from _idle(jobs, numbers)
        case "paced":
            yield from _paced(started, seconds, rate, numbers)
        case "mixed":
            yield from _mixed(started, seconds, rate, command.get("slow", 0), numbers)
        case "sleep":
            yield _id(next(numbers)), {"at": started, "sleep": seconds}
        case what:
            payloads = map(_payloads(what, int(command.get("bytes", 0))), range(jobs))
            ids = itertools.repeat(0) if what == "one id" else numbers
            yield from _bulk(payloads, ids, command.get("chunk", CHUNK))


def _payloads(what: str, size: int) -> Callable[[int], Any]:
    if what == "small":
        return "{:08d}".format
    fill = {"fill": "x" * size} if what == "sized" else {}
    return lambda number: {"n": number, **fill}


def _id(number: int) -> str:
    return f"{number:010d}"


def _bulk(payloads: Iterator[Any], numbers: Iterator[int], size: int) -> Iterator[Step]:
    while chunk := list(itertools.islice(payloads, size)):
        yield [(_id(next(numbers)), payload) for payload in chunk]


def _hot(jobs: int) -> Iterator[Step]:
    """A tenth as many ids as jobs, and 1 % of those get 90 %."""
    dice = random.Random(1)
    ids = max(100, jobs // 10)
    hot = ids // 100
    pushes = [(_id(dice.randrange(hot if dice.random() < 0.9 else ids)), {"n": number}) for number in range(jobs)]
    yield from (pushes[first : first + CHUNK] for first in range(0, jobs, CHUNK))


def _single(until: float, numbers: Iterator[int]) -> Iterator[Step]:
    while time.monotonic() < until:
        yield _id(next(numbers)), {"n": 1}


def _idle(jobs: int, numbers: Iterator[int]) -> Iterator[Step]:
    for _ in range(jobs):
        yield random.uniform(*PAUSES)
        yield _id(next(numbers)), {"at": time.monotonic()}


def _paced(started: float, seconds: float, rate: float, numbers: Iterator[int]) -> Iterator[Step]:
    sent, stamped = 0, max(1, round(rate / STAMPED_RATE))
    while (now := time.monotonic()) < started + seconds or not sent:  # one at least, where the machine stood still
        due = int((now - started) * rate)
        if rate <= SINGLE_RATE and due > sent:
            yield _id(next(numbers)), {"at": now}
            sent += 1
        elif due > sent:
            marks = range(sent, min(due, sent + CHUNK))
            yield [(_id(next(numbers)), {"n": 1} if mark % stamped else {"at": now}) for mark in marks]
            sent += len(marks)
        else:
            yield max(0.0001, min(TICK, (sent + 1) / rate - (now - started)) if rate <= SINGLE_RATE else TICK)


def _mixed(started: float, seconds: float, rate: float, slow: int, numbers: Iterator[int]) -> Iterator[Step]:
    """The same moments and the same slow ones each time. Who pushes late makes up for it, and jobs wait no less."""
    dice = random.Random(1)
    at = dice.expovariate(rate)
    while at < seconds:
        yield max(0.0, started + at - time.monotonic())
        yield _id(next(numbers)), {"at": time.monotonic(), "sleep": SLOW if dice.random() * 1000 < slow else QUICK}
        at += dice.expovariate(rate)


if __name__ == "__main__":
    main(*sys.argv[1:])
