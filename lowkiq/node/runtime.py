"""Runtime: what the parts of one node share. Outage: Redis is away. Refusals: it knows a queue otherwise."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass, field
from typing import Any, Final

from lowkiq import clock
from lowkiq.app import Lowkiq
from lowkiq.errors import Moved, OtherLayout, SettingsError, UsageError, unknown_option
from lowkiq.handlers.ledger import Ledger
from lowkiq.handlers.loop_thread import LoopThread
from lowkiq.importing import workers_nearby
from lowkiq.log import get_logger
from lowkiq.node.counts.incident_notes import IncidentNotes
from lowkiq.node.counts.times import NodeTimes
from lowkiq.node.mishaps import Mishaps
from lowkiq.node.noted import Noted
from lowkiq.node.places import Places
from lowkiq.node.schedulers import Ordered
from lowkiq.options import check_live
from lowkiq.queue.call import Caller
from lowkiq.queue.keys import Layout
from lowkiq.queue.places import QueuePlaces
from lowkiq.queue.shard import Shard, shards_of
from lowkiq.settings import Settings
from lowkiq.shared_page import DeadNode, SharedPage
from lowkiq.transport.errors import advice
from lowkiq.worker import Worker

logger = get_logger()

#: Seconds after which the same error is logged again.
REMIND: Final = 30.0


class Outage:
    """Logs when Redis goes away, now and then that it still is, when it is back: once for all threads of a node."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._since = 0.0
        #: The last one that is over, until it is told: from when to when (monotonic).
        self.last: tuple[float, float] | None = None
        #: Threads that have met an error and since then no success.
        self._threads: set[str] = set()
        #: The last error, and when (monotonic).
        self._last_error = ("", 0.0)
        #: What was logged → when (monotonic).
        self._logged: dict[str, float] = {}

    @property
    def is_on(self) -> bool:
        """True as long as some thread has met an error and since then no success."""
        return bool(self._threads)

    def error(self, within: float) -> str:
        """The last error, if some thread has met it within so many seconds, and has not got over it."""
        text, at = self._last_error
        return text if self._threads and clock.monotonic() - at <= within else ""

    def met(self, error: Exception, event: str = "redis_trouble") -> None:
        """Notes an error that the calling thread has met."""
        what = advice(error) or type(error).__name__
        now, thread = clock.monotonic(), threading.current_thread().name
        with self._lock:
            if not self._threads:
                self._since = now
            self._threads.add(thread)
            self._last_error = (f"{type(error).__name__}: {error}"[:300], now)
            if now - self._logged.get(what, -REMIND) < REMIND:
                return
            self._logged[what] = now
        logger.warning(event, thread_name=thread, error=f"{type(error).__name__}: {error}"[:300], advice=advice(error))

    def over(self, *others: str) -> None:
        """Notes that the calling thread, and others, get on again. Cheap if there was no error."""
        if not self._threads:
            return
        threads = {threading.current_thread().name, *others}
        with self._lock:
            if self._threads.isdisjoint(threads):
                return
            self._threads -= threads
            if self._threads:
                return
            self._logged.clear()
            self.last = self._since, clock.monotonic()
            seconds = self.last[1] - self._since
        logger.info("redis_back", seconds=round(seconds, 1))


class Refusals:
    """
    Queues that Redis knows with another layout than the application: the node leaves them alone, says so, and takes
    them up once that is mended. By what is known of a queue it acquires none of it, and goes on with shards that it has
    as long as their own layout is the application's; by that of a shard it leaves this one.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: Mapping[str, OtherLayout] = {}
        self._shards: dict[Shard, OtherLayout] = {}

    def of_queues(self, errors: Mapping[str, OtherLayout]) -> None:
        """Notes which queues are refused now."""
        with self._noting():
            self._queues = errors

    def of_shard(self, shard: Shard, error: OtherLayout | None) -> None:
        """Notes that a shard is refused now, or that it isn't."""
        error = None if isinstance(error, Moved) else error
        if error or shard in self._shards:
            with self._noting():
                if error:
                    self._shards[shard] = error
                else:
                    self._shards.pop(shard, None)

    def has(self, queue: str) -> bool:
        """Returns whether the queue is refused, by what is known of it as a whole."""
        return queue in self._queues

    def texts(self) -> dict[str, str]:
        """The queues that are refused, in whole or in part, and why."""
        with self._lock:
            return self._texts()

    def _texts(self) -> dict[str, str]:
        of_shards = {shard.queue: str(error) for shard, error in self._shards.items()}
        return of_shards | {queue: str(error) for queue, error in self._queues.items()}

    @contextlib.contextmanager
    def _noting(self) -> Iterator[None]:
        with self._lock:
            before = self._texts()
            yield
            after = self._texts()
        for queue, error in after.items():
            if queue not in before:
                logger.error(
                    "queue_refused", queue=queue, error=error, advice="the node runs the others until it is mended"
                )
        for queue in before.keys() - after.keys():
            logger.info("queue_taken_up", queue=queue)


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """One node: its name, what it runs, and how it reaches Redis."""

    #: Its name in Redis.
    node: str
    settings: Settings
    caller: Caller
    #: Called, from any thread, with what must stop the node.
    fatal: Callable[[BaseException], None]
    #: By queue.
    workers: Mapping[str, type[Worker]] = field(default_factory=dict)
    #: Queue → how much of the threads it gets beside the others; as people have set it live, if they have.
    weights: dict[str, int] = field(default_factory=dict)
    node_number: int = 0
    number_of_nodes: int = 1
    #: Nodes share the shards among themselves, whatever their numbers.
    is_elastic: bool = False
    #: Names of nodes known to be dead: their shards are taken without waiting for the lease.
    known_dead: Sequence[str] = ()
    #: The layouts of the queues as the node follows them (following.py).
    layouts: dict[str, Layout] = field(default_factory=dict)
    #: Shared with the supervisor, if there is one.
    page: SharedPage = field(default_factory=SharedPage)
    #: The context variables that on_server_init has left.
    variables: Context = field(default_factory=Context)
    #: Where coroutines run.
    loop: LoopThread = field(default_factory=LoopThread)
    #: Failures that the next beat tells Redis of.
    ledger: Ledger = field(default_factory=Ledger)
    outage: Outage = field(default_factory=Outage)
    refusals: Refusals = field(default_factory=Refusals)
    #: Queue → what this node has of its `max_running`.
    places: dict[str, Places] = field(default_factory=dict)
    incidents: IncidentNotes = field(default_factory=IncidentNotes)
    mishaps: Mishaps = field(init=False)
    #: Shards that have letters, that have jobs which wait for others, and that may have jobs which recur.
    letters: Noted = field(default_factory=Noted)
    waits: Noted = field(default_factory=Noted)
    recurring: Noted = field(default_factory=Noted)
    #: Shards that were just acquired, and in which something is parked.
    parked: Noted = field(default_factory=Noted)
    #: Claims that have ended while their jobs were on their way to other shards: the lease keeper settles them.
    in_transit: list[Any] = field(default_factory=list)
    #: How long jobs waited and ran.
    times: NodeTimes = field(default_factory=NodeTimes)
    #: Each adds to Redis what is counted in memory, and keeps it if that fails. Called with each beat and at the end.
    flushes: list[Callable[[], None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        object.__setattr__(self, "mishaps", Mishaps(self.incidents))

    @property
    def namespace(self) -> str:
        """The start of every key."""
        return self.settings.namespace

    @property
    def queues(self) -> dict[str, int]:
        """The shards_count that each queue begins with."""
        return {worker.queue_name: worker.shards_count for worker in self.workers.values()}

    def places_of(self, queue: str) -> Places:
        """Its places of a queue."""
        if queue not in self.places:
            calls = QueuePlaces(self.namespace, queue, self.node, self.settings.lease_ttl)
            self.places[queue] = Places(calls, self.caller, self.outage.met)
        return self.places[queue]

    def dead_nodes(self) -> list[DeadNode]:
        """Nodes known to be dead by now; a supervisor may know of more, and of what they ran."""
        return [*map(DeadNode, self.known_dead), *self.page.read_bulletin().dead_nodes]

    def shards(self) -> list[Shard]:
        return shards_of(self.namespace, {**self.queues, **self.layouts})


def chosen_workers(app: Lowkiq, queues: Collection[str] | None) -> dict[str, type[Worker]]:
    """The workers of these queues, by queue; without queues all. A SettingsError for what no node can run."""
    if not app.workers:
        raise SettingsError(f"the application has no workers: register one with @app.worker{workers_nearby(app)}")
    for queue in queues or ():
        if queue not in app.workers:
            raise UsageError(str(unknown_option("queue", queue, app.workers)))
    chosen = {queue: worker for queue, worker in app.workers.items() if queues is None or queue in queues}
    for worker in chosen.values():
        if worker.perform is Worker.perform and worker.perform_one is Worker.perform_one:
            raise SettingsError(f"worker {worker.__name__} has no perform: a node can't run its jobs")
    return chosen


def chosen_weights(app: Lowkiq, queues: Collection[str] | None) -> dict[str, int]:
    """
    The weights of those queues that have one. A SettingsError where the application has a scheduler of its own, and
    for a scheduler that names a queue which the application does not have.
    """
    named = queues if isinstance(queues, Mapping) else {}
    weights = {queue: weight for queue, weight in named.items() if weight is not None}
    for queue, weight in weights.items():
        check_live(queue, "weight", weight)
    build = app.settings.build_scheduler
    if build and weights:
        said = ",".join(f"{queue}={weight}" for queue, weight in weights.items())
        told = f"--queues gives weights ({said}), but the application has a build_scheduler"
        raise SettingsError(f"{told}: use one of them")
    scheduler = build() if build else None
    if isinstance(scheduler, Ordered):
        scheduler.check(app.workers)
    return weights
