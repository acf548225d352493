"""Health: what a node tells of itself in its heartbeat."""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from lowkiq import clock
from lowkiq.admin.nodes import BEAT_INTERVAL, NodeHealth
from lowkiq.node.dump import job_of
from lowkiq.version import VERSION

if TYPE_CHECKING:
    from lowkiq.node.shard_handler import ShardHandler
    from lowkiq.node.worker_thread import WorkerThread

#: Beats whose memory and CPU are told again with each: five minutes of them.
KEPT_BEATS = 60

#: What the supervisor tells its nodes of themselves.
SUPERVISOR_PID, SLOT, RESTARTS, LAST_EXIT = (
    "LOWKIQ_SUPERVISOR_PID",
    "LOWKIQ_SLOT",
    "LOWKIQ_RESTARTS",
    "LOWKIQ_LAST_EXIT",
)


class HealthReport:
    """Gathers a node's health, from any thread, without stopping anybody."""

    def __init__(
        self,
        name: str,
        node_number: int,
        number_of_nodes: int,
        *,
        workers: Sequence[WorkerThread],
        environment: Mapping[str, str],
    ) -> None:
        self._name = name
        self._numbers = (node_number, number_of_nodes)
        self._workers = workers
        self._environment = environment
        self._process = psutil.Process()
        self._cpu_percent = 0.0
        self._cpu_at = clock.monotonic()
        self._process.cpu_percent()  # the first call only starts the measurement
        self._started_at = clock.real()
        self._rss_history: deque[int] = deque(maxlen=KEPT_BEATS)
        self._cpu_history: deque[float] = deque(maxlen=KEPT_BEATS)
        self._kept_at = float("-inf")
        self._boot_id = _boot_id()

    def __call__(self, state: str, round_trip: float | None) -> NodeHealth:
        """The health now."""
        handlers = [handler for worker in self._workers for handler in worker.handlers]
        rss, cpu_percent = self._process.memory_info().rss, self._cpu()
        self._keep(rss, cpu_percent)
        return NodeHealth(
            node=self._name,
            boot_id=self._boot_id,
            host=socket.gethostname(),
            pid=os.getpid(),
            supervisor_pid=self._number(SUPERVISOR_PID),
            node_number=self._numbers[0],
            number_of_nodes=self._numbers[1],
            slot=self._number(SLOT),
            state=state,
            started_at=self._started_at,
            beat_at=clock.real(),
            version=VERSION,
            owned=_by_queue([handler for handler in handlers if handler.epoch is not None]),
            fostered=_by_queue([handler for handler in handlers if handler.is_foster and handler.epoch is not None]),
            waited_for=_by_holder([handler for handler in handlers if not handler.is_foster and handler.epoch is None]),
            threads=[job_of(worker) for worker in self._workers],
            processed=sum(worker.processed for worker in self._workers),
            failed=sum(worker.failed for worker in self._workers),
            rss=rss,
            cpu_percent=cpu_percent,
            redis_round_trip=round_trip,
            restarts=self._number(RESTARTS) or 0,
            last_exit=self._environment.get(LAST_EXIT) or None,
            rss_history=list(self._rss_history),
            cpu_history=list(self._cpu_history),
        )

    def _keep(self, rss: int, cpu_percent: float) -> None:
        """Beats that come early, for a change of state, are not kept: the history has equal steps."""
        now = clock.monotonic()
        if now - self._kept_at > BEAT_INTERVAL / 2:
            self._kept_at = now
            self._rss_history.append(rss)
            self._cpu_history.append(round(cpu_percent, 1))

    def _cpu(self) -> float:
        """Percent of a core since the last look, if that was long enough ago to mean something."""
        now = clock.monotonic()
        if now - self._cpu_at >= 1:
            self._cpu_percent, self._cpu_at = self._process.cpu_percent(), now
        return self._cpu_percent

    def _number(self, name: str) -> int | None:
        text = self._environment.get(name, "")
        return int(text) if text.isdecimal() else None


def _by_queue(handlers: Sequence[ShardHandler]) -> dict[str, list[int]]:
    shards: dict[str, list[int]] = {}
    for handler in handlers:
        shards.setdefault(handler.shard.queue, []).append(handler.shard.index)
    return shards


def _by_holder(handlers: Sequence[ShardHandler]) -> dict[str, dict[str, list[int]]]:
    """Shards that are not ours, by who has them; "" before we have heard of anybody."""
    holders: dict[str, list[ShardHandler]] = {}
    for handler in handlers:
        holders.setdefault(handler.holder or "", []).append(handler)
    return {holder: _by_queue(found) for holder, found in holders.items()}


def _boot_id() -> str:
    """Which boot of the machine this is, where it tells: a process id means nothing after the next."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""
