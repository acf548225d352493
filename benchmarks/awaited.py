"""The measurements of awaited pushes: how many a second, and how long an event loop is kept from all else."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable
from typing import Any

from benchmarks.contender import Contender, server
from benchmarks.measures import Figures, Pace
from lowkiq import Lowkiq

#: Tasks that push single jobs, one after the other each; and jobs whose pushing may keep the loop from nothing else.
IN_FLIGHT, JOBS = 20, 20_000


def awaited(_: Contender, pace: Pace) -> Figures:
    """Single pushes a second, and the longest pauses of the loop meanwhile, in milliseconds."""
    with server() as url:
        return asyncio.run(_measure(url, pace.seconds))


async def _measure(url: str, seconds: float) -> Figures:
    app = Lowkiq(redis_url=url)
    worker = app.worker(queue_name="awaited")(_work)
    await worker.aperform_async([{"id": f"warm-{number}"} for number in range(1_000)])
    rate = await _singles(worker, seconds)
    jobs: list[Any] = [{"id": f"list-{number}", "payload": {"n": number}} for number in range(JOBS)]
    of_list = await _longest_pause(lambda: worker.aperform_async(jobs))
    of_singles = await _longest_pause(
        lambda: asyncio.gather(*(worker.aperform_async([{"id": f"one-{number}"}]) for number in range(JOBS)))
    )
    of_nothing = await _longest_pause(lambda: asyncio.gather(*(asyncio.sleep(0.001) for _ in range(JOBS))))
    await app.aclose()
    return {
        "awaited": rate,
        "pause of list": of_list * 1e3,
        "pause of singles": of_singles * 1e3,
        "pause of nothing": of_nothing * 1e3,
    }


async def _singles(worker: Any, seconds: float) -> float:
    pushed = 0
    began = time.perf_counter()

    async def push() -> None:
        nonlocal pushed
        while time.perf_counter() < began + seconds:
            pushed += 1
            await worker.aperform_async([{"id": f"id-{pushed}", "payload": {"n": pushed}}])

    await asyncio.gather(*(push() for _ in range(IN_FLIGHT)))
    return pushed / (time.perf_counter() - began)


async def _longest_pause(start: Callable[[], Awaitable[Any]]) -> float:
    """Seconds that a task which does nothing but come by, again and again, is kept from it at most."""
    pauses = [0.0]

    async def come_by() -> None:
        last = time.perf_counter()
        while True:
            await asyncio.sleep(0)
            now = time.perf_counter()
            pauses.append(now - last)
            last = now

    gc.collect()
    task = asyncio.create_task(come_by())
    await asyncio.sleep(0)
    await start()
    task.cancel()
    return max(pauses)


def _work(_: dict[str, list[Any]]) -> None: ...
