"""Heartbeat: one thread that tells Redis, for people to see, that the node lives and how it is."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import psutil
from redis.exceptions import RedisError, ResponseError

from lowkiq import clock
from lowkiq.admin.beats.health import BEAT_INTERVAL, LOOP_BLOCKED, NodeHealth, beat, forget
from lowkiq.admin.words import age, moment
from lowkiq.codec import encodable
from lowkiq.log import get_logger
from lowkiq.node.health.dump import health_of_thread, healths_of_tasks, short_stack
from lowkiq.node.job_thread import JobThread, leases_of_threads
from lowkiq.node.leases.lease import Lease
from lowkiq.node.ownership.shard_loads import ShardLoads
from lowkiq.node.runtime import Runtime
from lowkiq.node.tasks.feeder import Feeder
from lowkiq.queue import keys
from lowkiq.queue.call import Caller, grouped
from lowkiq.version import VERSION

logger = get_logger()

#: Batches of the event loop that a beat names: those that have taken longest.
MOST_TASKS: Final = 50
#: Seconds for which an error that Redis has given is told.
MET_WITHIN: Final = 3 * BEAT_INTERVAL
#: Seconds of an outage that is told of as an incident; and within which only one node tells of one.
TOLD_FROM, TOLD_ONCE = 3.0, 15
#: Beats whose memory and CPU each beat repeats: five minutes of them.
KEPT_BEATS = 60


class HealthReport:
    """Gathers a node's health, from any thread, without stopping anybody."""

    def __init__(self, runtime: Runtime, workers: Sequence[JobThread], environment: Mapping[str, str]) -> None:
        self._runtime = runtime
        self._workers = workers
        self._feeders = [worker for worker in workers if isinstance(worker, Feeder)]
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
        self._nodes = runtime.number_of_nodes
        self._loads = ShardLoads(workers, leases_of_threads(workers))

    def follow(self, leases: Iterable[Lease]) -> None:
        """Tells the loads of these from here on."""
        self._loads.follow(leases)

    def __call__(self, state: str, round_trip: float | None) -> NodeHealth:
        leases = [lease for lease in leases_of_threads(self._workers) if lease.is_current]
        rss, cpu_percent = self._process.memory_info().rss, self._cpu()
        self._keep(rss, cpu_percent)
        return NodeHealth(
            node=self._runtime.node,
            boot_id=self._boot_id,
            host=socket.gethostname(),
            pid=os.getpid(),
            supervisor_pid=self._number("LOWKIQ_SUPERVISOR_PID"),
            node_number=self._runtime.node_number,
            number_of_nodes=self._nodes_to_be(),
            is_elastic=self._runtime.is_elastic,
            slot=self._number("LOWKIQ_SLOT"),
            state=state,
            started_at=self._started_at,
            beat_at=clock.real(),
            version=VERSION,
            queues=sorted(self._runtime.queues),
            weights=dict(self._runtime.weights),
            refused=self._runtime.refusals.texts(),
            owned=_by_queue([lease for lease in leases if lease.epoch is not None]),
            loads=self._loads(),
            fostered=_by_queue([lease for lease in leases if lease.is_foster and lease.epoch is not None]),
            waited_for=_by_holder([lease for lease in leases if not lease.is_foster and lease.epoch is None]),
            threads=[health_of_thread(worker) for worker in self._workers if worker not in self._feeders],
            tasks=sum(feeder.busy for feeder in self._feeders) if self._feeders else None,
            longest_tasks=[task for feeder in self._feeders for task in healths_of_tasks(feeder, MOST_TASKS)],
            loop_lag=round(self._runtime.loop.lag, 3),
            processed=sum(worker.processed for worker in self._workers),
            failed=sum(worker.failed for worker in self._workers),
            rss=rss,
            rss_limit=self._number("LOWKIQ_RSS_LIMIT"),
            cpu_percent=cpu_percent,
            redis_round_trip=round_trip,
            redis_error=encodable(self._runtime.outage.error(MET_WITHIN)),
            restarts=self._number("LOWKIQ_RESTARTS") or 0,
            last_exit=encodable(self._environment.get("LOWKIQ_LAST_EXIT", "")) or None,
            notices=list(self._runtime.page.read_bulletin().notices),
            rss_history=list(self._rss_history),
            cpu_history=list(self._cpu_history),
        )

    def _nodes_to_be(self) -> int:
        """The number of nodes that share its numbers; without them, of its supervisor's, which may change."""
        if self._runtime.is_elastic and (told := self._runtime.page.read_bulletin().nodes):
            self._nodes = told
        return self._nodes

    def _keep(self, rss: int, cpu_percent: float) -> None:
        """Leaves out beats that come early, for a change of state: the history has equal steps."""
        now = clock.monotonic()
        if now - self._kept_at > BEAT_INTERVAL / 2:
            self._kept_at = now
            self._rss_history.append(rss)
            self._cpu_history.append(round(cpu_percent, 1))

    def _cpu(self) -> float:
        """Percent of a core since the last measurement, if that was long enough ago to mean something."""
        now = clock.monotonic()
        if now - self._cpu_at >= 1:
            self._cpu_percent, self._cpu_at = self._process.cpu_percent(), now
        return self._cpu_percent

    def _number(self, name: str) -> int | None:
        """A number that the supervisor has told the node in its environment."""
        text = self._environment.get(name, "")
        return int(text) if text.isdecimal() else None


def server_of(caller: Caller) -> str:
    """Which process of Redis answers, another one after each start of it and after a failover; "" if that is no one."""
    try:
        return "" if caller.is_spread else str(caller.command("INFO", "server").get("run_id", ""))
    except ResponseError:  # who may not ask
        return ""


def away_text(since: float, until: float, *, is_other: bool) -> str:
    """The sentence on an outage between two times (monotonic)."""
    real = clock.real() - clock.monotonic()
    first, last = (moment(real + at) for at in (since, until))
    server = "; another server answers since, or it was started anew" if is_other else ""
    return f"Redis was away for {age(until - since)}, from {first} to {last}{server}"


def _by_queue(leases: Sequence[Lease]) -> dict[str, list[int]]:
    return grouped((lease.shard.queue, lease.shard.index) for lease in leases)


def _by_holder(leases: Sequence[Lease]) -> dict[str, dict[str, list[int]]]:
    """Shards that are not ours, by who has them; "" before we know of anybody."""
    holders = grouped((lease.holder or "", lease) for lease in leases)
    return {holder: _by_queue(found) for holder, found in holders.items()}


def _boot_id() -> str:
    """
    The id of the machine's boot, and of this container's process ids, where there are such: a process id means nothing
    after the next boot, and in another container it is another process.
    """
    found = []
    with contextlib.suppress(OSError):
        found.append(Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip())
        found.append(str(Path("/proc/self/ns/pid").readlink()))
    return " ".join(found)


class Heartbeat(threading.Thread):
    """One thread of a node. `report` gives the health, and gets the seconds that the last beat took."""

    def __init__(
        self, runtime: Runtime, report: Callable[[float | None], NodeHealth], housekeeping: Callable[[], None]
    ) -> None:
        super().__init__(name="lowkiq-heartbeat", daemon=True)
        self._runtime = runtime
        self._report = report
        self._keep_house = housekeeping
        self._stopping = threading.Event()
        self._soon = threading.Event()
        self._round_trip: float | None = None
        self._is_blocked = False
        #: The server that answered last, as far as it tells.
        self._server: str | None = None

    def beat_soon(self) -> None:
        """Beats at once: something has changed that people wait to see."""
        self._soon.set()

    def stop(self) -> None:
        """Ends the thread, and tells Redis that the node is gone."""
        self._stopping.set()
        self._soon.set()

    def run(self) -> None:
        self._forget([dead.name for dead in self._runtime.dead_nodes()])
        while not self._stopping.is_set():
            self._beat()
            self._soon.wait(BEAT_INTERVAL)
            self._soon.clear()
        try:
            self._flush()
        except RedisError as error:
            logger.warning("counts_lost", error=f"{type(error).__name__}: {error}"[:300])
        self._forget([self._runtime.node])

    def _beat(self) -> None:
        try:
            health = self._report(self._round_trip)
            started = clock.monotonic()
            beat(self._runtime.caller, self._runtime.namespace, health)
            self._round_trip = clock.monotonic() - started
            self._flush()
            self._keep_house()
            self._note_blocked_loop()
            self._runtime.outage.over()
            self._note_outage()
        except RedisError as error:
            self._runtime.outage.met(error)
        except BaseException as error:  # noqa: BLE001 (of a machine without free descriptors, say: the next one may do)
            self._runtime.mishaps.met("beat_failed", error, "the node runs on; its page tells no news meanwhile")

    def _note_outage(self) -> None:
        """Notes that Redis was away, once for all nodes that met it, and whether another server is back."""
        runtime, outage = self._runtime, self._runtime.outage.last
        if self._server is not None and not outage:
            return
        before, self._server = self._server, server_of(runtime.caller)
        runtime.outage.last = None
        is_other = bool(before) and before != self._server
        if outage and (is_other or outage[1] - outage[0] >= TOLD_FROM):
            (is_first,) = runtime.caller.commands([("SET", keys.away(runtime.namespace), "1", "NX", "EX", TOLD_ONCE)])
            if is_first:
                runtime.incidents.note("Redis away", away_text(*outage, is_other=is_other), "bad")

    def _flush(self) -> None:
        """Adds to Redis what the node has counted in memory. One that fails in itself keeps no other from its turn."""
        for flush in self._runtime.flushes:
            try:
                flush()
            except RedisError:
                raise
            except BaseException as error:  # noqa: BLE001 (the user's splitter, say; the others have their turn)
                name = getattr(getattr(flush, "func", flush), "__qualname__", type(flush).__name__)
                self._runtime.mishaps.met("flush_failed", error, "it is tried again with each beat", flush=name)

    def _note_blocked_loop(self) -> None:
        """Logs once what blocks the event loop, and with it all that runs there."""
        loop = self._runtime.loop
        if loop.lag < LOOP_BLOCKED or not loop.thread:
            self._is_blocked = False
        elif not self._is_blocked:
            self._is_blocked = True
            frame = sys._current_frames().get(loop.thread.ident or 0)
            logger.warning(
                "event_loop_blocked", seconds=round(loop.lag, 1), frames=short_stack(frame),
                advice="await what takes long, or call it by asyncio.to_thread",
            )  # fmt: skip

    def _forget(self, nodes: Sequence[str]) -> None:
        try:
            for node in nodes:
                forget(self._runtime.caller, self._runtime.namespace, node)
        except (RedisError, ValueError) as error:  # a name that is no UTF-8
            logger.debug("beat_failed", error=type(error).__name__)
