"""Reports of the jobs of a measurement: how many were done when, and how long they waited."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterable
from typing import Any, NamedTuple, Self

from benchmarks.contender import ContenderFailed
from benchmarks.peers.apps.report import EVERY

#: The part of the jobs whose time is taken: not while processes start, nor while some have nothing left.
FROM, TO = 0.15, 0.85
#: And while all processes work, if that is at least such a part of this time. Else they work one after the other.
TOGETHER = 0.4


class Latency(NamedTuple):
    """Milliseconds from enqueue to start."""

    p50: float
    p99: float
    most: float

    @classmethod
    def of(cls, seconds: Iterable[float]) -> Self:
        """Percentiles of these."""
        values = sorted(seconds) or [float("nan")]
        return cls(*(values[at] * 1e3 for at in (len(values) // 2, int(len(values) * 0.99), -1)))


class Tally:
    """Listens, adds up, and tells rates. One for each measurement; `close` ends it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.reset()
        tally = self

        class Listener(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                for line in self.rfile:
                    tally.add(json.loads(line), self.client_address)

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Listener)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        self.address = "{}:{}".format(*self._server.server_address[:2])

    def reset(self) -> None:
        """Forgets what it was told: another measurement begins."""
        with self._lock:
            self._events: list[tuple[float, int]] = []
            #: Of each process, when its first and its last word were said.
            self._spans: dict[object, tuple[float, float]] = {}
            self._latencies: list[float] = []
            self.done = self.performs = 0

    def add(self, word: dict[str, Any], process: object = None) -> None:
        """Takes a word of a process."""
        with self._lock:
            first, last = self._spans.get(process, (word["t"], word["t"]))
            self._spans[process] = min(first, word["t"]), max(last, word["t"])
            self._events.append((word["t"], word["done"]))
            self._latencies += word["latencies"]
            self.done += word["done"]
            self.performs += word["performs"]

    def rate(self) -> float:
        """Jobs a second, over the middle of what is done, while all processes work."""
        with self._lock:
            events, done, spans = sorted(self._events), self.done, list(self._spans.values())
        if not events:
            raise ContenderFailed("it did no job")
        begin, end = self._reached(events, FROM * done), self._reached(events, TO * done)
        if end == begin:  # all in a word or two: too few jobs for more than a guess
            return done / max(self.seconds(), EVERY)
        together = max(begin, *(first for first, _ in spans)), min(end, *(last for _, last in spans))
        if together[1] - together[0] >= TOGETHER * (end - begin):
            begin, end = together
        return sum(number for moment, number in events if begin < moment <= end) / (end - begin)

    def seconds(self, since: float | None = None) -> float:
        """Seconds between the first word, or that moment (monotonic), and the last."""
        with self._lock:
            times = [time for time, _ in self._events]
        return max(times) - (since or min(times)) if times else 0.0

    @property
    def processes(self) -> int:
        """How many processes have said a word."""
        return len(self._spans)

    @property
    def started(self) -> int:
        """How many jobs have told their latency: they do as they start."""
        return len(self._latencies)

    def latency(self, skip: float = 0.1) -> Latency:
        """Percentiles, without the first ones, when connections and code are cold."""
        with self._lock:
            return Latency.of(self._latencies[int(len(self._latencies) * skip) :])

    def close(self) -> None:
        """Stops listening."""
        self._server.shutdown()
        self._server.server_close()

    @staticmethod
    def _reached(events: list[tuple[float, int]], jobs: float) -> float:
        """Time at which so many were done."""
        total = 0
        for moment, done in events:
            total += done
            if total >= jobs:
                return moment
        return events[-1][0]
