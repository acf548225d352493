"""Deeds of jobs to the event loop that they run on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from lowkiq import current
from tests.faults.hostile.deeds import FOR_EVER, HELD, HUNG, OUTLIVED, Odd, kept, raise_, write


async def _outlive_as_a_task() -> None:
    context = current()

    async def speak() -> None:
        with suppress(Exception):
            while True:
                await context.checkpoint(OUTLIVED)
                await asyncio.sleep(0.05)
        with suppress(Exception):
            await context.checkpoint(OUTLIVED)
            write("intruder")

    kept.append(asyncio.create_task(speak()))


async def _leave_a_task() -> None:
    async def stay() -> None:
        while True:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(FOR_EVER)

    kept.append(asyncio.create_task(stay()))


async def _leave_a_generator() -> None:
    async def rows() -> Any:
        while True:
            yield 1

    kept.append(rows())
    await anext(kept[-1])


async def _cancel_all() -> None:
    for task in asyncio.all_tasks():
        task.cancel()


async def _stop_the_loop() -> None:
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0.1)


async def _raise_in_a_callback() -> None:
    asyncio.get_running_loop().call_soon(raise_, Odd())
    await asyncio.sleep(0.1)


async def _end_the_executor() -> None:
    await asyncio.get_running_loop().shutdown_default_executor()


async def _raise_later() -> None:
    asyncio.get_running_loop().call_later(0.3, raise_, Odd())


async def _refuse_to_be_cancelled() -> None:
    until = time.monotonic() + HUNG
    while time.monotonic() < until:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(HUNG)


async def _spoil_the_loop() -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda *_: raise_(Odd()))
    loop.set_debug(True)
    asyncio.set_event_loop(None)


async def _block_the_loop() -> None:
    time.sleep(HELD)


#: What a job does to an event loop.
ON_LOOP: Final[dict[str, Callable[[], Any]]] = {
    "leave a task": _leave_a_task,
    "leave a generator": _leave_a_generator,
    "outlive as a task": _outlive_as_a_task,
    "cancel all tasks": _cancel_all,
    "stop the loop": _stop_the_loop,
    "raise in a callback": _raise_in_a_callback,
    "raise later": _raise_later,
    "refuse to be cancelled": _refuse_to_be_cancelled,
    "spoil the loop": _spoil_the_loop,
    "end the executor": _end_the_executor,
    "block the loop": _block_the_loop,
}
