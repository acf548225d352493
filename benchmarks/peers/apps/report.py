"""The measured job, and how it tells that it ran. Of the standard library: it runs in every contender's environment."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

#: Seconds between two words of a process: rare beside its jobs, and a hundredth of a measurement.
EVERY: Final = 0.02
#: Seconds that a job of each kind waits, unless its payload says so, or burns.
IO_SECONDS: Final = 0.005
CPU_SECONDS: Final = 0.001


class MeasuredJob:
    """
    What every contender's job calls. It does what BENCH_JOB says, and is counted.

    A thread of its own tells the counts, so that a job costs an append. It starts with the first job: some contenders
    fork before that.
    """

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._work = {"blank": _nothing, "io": _wait, "cpu": _burn}[environment.get("BENCH_JOB", "blank")]
        self._waits = self._work is _wait
        self._every = float(environment.get("BENCH_EVERY") or EVERY)
        self._address = environment.get("BENCH_REPORT", "")
        self._done: list[None] = []
        self._performs: list[None] = []
        self._latencies: list[float] = []
        self._start = threading.Lock()
        self._teller: threading.Thread | None = None

    def __call__(self, payload: Any) -> None:
        """Runs in a thread."""
        self._begin(payload)
        self._work(payload)
        self._done.append(None)

    async def run(self, payload: Any) -> None:
        """Runs as a coroutine: it waits without holding the loop."""
        self._begin(payload)
        if self._waits:
            await asyncio.sleep(payload.get("sleep", IO_SECONDS))
        else:
            self._work(payload)
        self._done.append(None)

    def performed(self) -> None:
        """Counts a call of user code, where one call can take several payloads."""
        self._performs.append(None)

    def _begin(self, payload: Any) -> None:
        if "at" in payload:
            self._latencies.append(time.monotonic() - payload["at"])
        if self._teller is None:
            self._start_telling()

    def _start_telling(self) -> None:
        with self._start:
            if self._teller is None:
                self._teller = threading.Thread(target=self._tell, name="report", daemon=True)
                self._teller.start()

    def _tell(self) -> None:
        host, port = self._address.rsplit(":", 1)
        with socket.create_connection((host, int(port))) as connection:
            while True:
                time.sleep(self._every)
                word: dict[str, Any] = {
                    "t": time.monotonic(),
                    "done": _drain(self._done),
                    "performs": _drain(self._performs),
                }
                word["latencies"] = [self._latencies.pop() for _ in range(len(self._latencies))]
                if word["done"] or word["latencies"]:
                    connection.sendall(json.dumps(word).encode() + b"\n")


def _drain(counted: list[None]) -> int:
    number = len(counted)
    del counted[:number]
    return number


def _nothing(_payload: Any) -> None:
    """A blank job."""


def _wait(payload: Any) -> None:
    time.sleep(payload.get("sleep", IO_SECONDS))


def _burn(_payload: Any) -> None:
    """Uses the processor, not the clock: a thread that waits for its turn burns nothing."""
    end = time.thread_time() + CPU_SECONDS
    while time.thread_time() < end:
        pass
