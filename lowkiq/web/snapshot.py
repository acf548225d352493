"""
Snapshots: the one poll of Redis that all dashboards share.

Nothing polls while nobody looks: the first request after the interval takes the next snapshot, and all others wait for
that one.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, Final

import msgspec
import redis
from msgspec import Meta
from redis.exceptions import ResponseError
from starlette.concurrency import run_in_threadpool

from lowkiq import clock
from lowkiq.admin.alerts.alert import Alert
from lowkiq.admin.alerts.look import Found, Look
from lowkiq.admin.alerts.redis import RedisHealth
from lowkiq.admin.beats.health import NodeHealth, Running, owner_name, read_health, running_batches
from lowkiq.admin.beats.members import Placement, read_placements
from lowkiq.admin.beats.nodes import Nodes, judge
from lowkiq.admin.beats.owners import Owner, owners_of
from lowkiq.admin.live import LiveSetting
from lowkiq.admin.metrics import QueueMetrics, ShardMetrics, by_queue, read_shards, shards_count_of, total
from lowkiq.admin.resharding import Resharding, read_moving
from lowkiq.admin.why.reading import Around
from lowkiq.errors import unknown_queue
from lowkiq.queue.keys import Layout
from lowkiq.queue.shard import Shard, shards_of
from lowkiq.web.backend import Backend
from lowkiq.web.rates import Meter, Rates, sum_of

#: Seconds for which a snapshot is new enough.
INTERVAL: Final = 1.0
#: Seconds that a page waits for a new one; that the script's questions do, which must be answered in time; and up to
#: which age an older one will do, which the page then tells.
PATIENCE: Final = 5.0
TICK_PATIENCE: Final = 1.5
OLDEST: Final = 10.0
#: Age from which a page says that it is stale: three ticks that brought nothing new.
STALE: Final = 4.0
#: Shards that one poll reads: about 0.8 ms of Redis. Where there are more, they take turns, and a shard's metrics are
#: some polls old: of a thousand shards, up to ten seconds.
SHARDS_A_POLL: Final = 100
#: Shards that one poll reads for who wants exact numbers: about 16 ms of Redis, once a second at most.
EXACT_SHARDS: Final = 2_000


class QueueRow(msgspec.Struct, frozen=True):
    """A queue at a glance."""

    queue: str
    shards_count: int
    metrics: QueueMetrics
    rates: Annotated[Rates, Meta(description="A second.")]
    merge_ratio: Annotated[float, Meta(description="Share of the payloads pushed that joined a queued id, 0 to 1.")]


@dataclass(frozen=True)
class Snapshot:
    """State of everything at one moment."""

    #: Rises with each poll.
    number: int
    #: Redis's time.
    at: float
    layouts: dict[str, int | Layout]
    shards: list[ShardMetrics]
    queues: dict[str, QueueMetrics]
    rates: dict[str, Rates]
    total: QueueMetrics
    total_rate: Rates
    nodes: Nodes
    server: RedisHealth
    #: All that is wrong, the worst first.
    alerts: list[Alert]
    #: Shards that were moved for their load.
    placements: Mapping[tuple[str, int], Placement]
    #: Queue → options that people have set in place of the code's.
    live: Mapping[str, Mapping[str, LiveSetting]]
    #: Queue → how far it is with being resharded.
    reshards: Mapping[str, Resharding] = field(default_factory=dict)
    #: By this process's clock: when its poll began, and when the oldest of the shards' numbers was read.
    began: float = 0.0
    oldest: float = 0.0

    @cached_property
    def shards_counts(self) -> dict[str, int]:
        """Each queue with its number of shards."""
        return {queue: shards_count_of(layout) for queue, layout in self.layouts.items()}

    @property
    def around(self) -> Around:
        """What decides why jobs do not run."""
        return Around(self.nodes.nodes, self.layouts, self.live, self.placements, self.reshards)

    @property
    def age(self) -> float:
        """Seconds since the oldest of the shards' numbers was read."""
        return clock.monotonic() - self.oldest

    @property
    def is_exact(self) -> bool:
        """True when all numbers were read at once, in its own poll."""
        return self.oldest >= self.began

    def shard(self, queue: str, number: int) -> ShardMetrics | None:
        """The numbers of a shard, if they are known already."""
        return self._shards.get((queue, number))

    def running(self, queue: str, shard: int) -> Sequence[Running]:
        """The batches of a shard that are performed, by the last heartbeat, the longest first."""
        return self._running.get((queue, shard), ())

    def node(self, owner: str | None) -> NodeHealth | None:
        """The node of that name, if it beats."""
        return self._nodes.get(owner or "")

    def owner_name(self, owner: str | None) -> str:
        """An owner in few words: its number, where several machines have nodes also its host."""
        return owner_name(self._nodes, owner)

    def row(self, queue: str) -> QueueRow:
        """A queue at a glance. Raises UnknownQueue."""
        metrics = self.queues.get(queue)
        if metrics is None:
            raise unknown_queue(queue, self.queues)
        return QueueRow(
            queue,
            self.shards_counts[queue],
            metrics,
            self.rates[queue],
            merge_ratio=metrics.merged / metrics.pushed if metrics.pushed else 0.0,
        )

    @cached_property
    def owners(self) -> Mapping[tuple[str, int], Owner]:
        """Each shard by its place → its node, the one that is to have it, and why."""
        found = owners_of(self.nodes.nodes, self.shards, self.placements, self.at)
        return {shard.place: row for shard, row in zip(self.shards, found, strict=True)}

    @cached_property
    def _nodes(self) -> dict[str, NodeHealth]:
        return {node.node: node for node in self.nodes.nodes}

    @cached_property
    def _shards(self) -> dict[tuple[str, int], ShardMetrics]:
        return {(shard.queue, shard.shard): shard for shard in self.shards}

    @cached_property
    def _running(self) -> dict[tuple[str, int], list[Running]]:
        return running_batches(self.nodes.nodes)


class Snapshots:
    """Takes snapshots, at most one per interval."""

    def __init__(self, backend: Backend, interval: float = INTERVAL) -> None:
        self.interval = interval
        self._backend = backend
        self._poll = _Poll(backend)
        #: The last good one.
        self.last: Snapshot | None = None
        self._taken_at = float("-inf")
        self._polling: asyncio.Task[Snapshot] | None = None
        #: Of the last poll, if it failed.
        self._error: Exception | None = None

    @property
    def age(self) -> float:
        """Seconds since the last good one was begun."""
        return clock.monotonic() - (self.last.began if self.last else float("-inf"))

    async def get(self, patience: float = PATIENCE) -> Snapshot:
        """
        A snapshot not older than the interval; where a new one takes longer than `patience`, the last one, if it is not
        older than OLDEST. Raises redis.RedisError when Redis is away, or too slow.
        """
        if self.last is not None and clock.monotonic() - self._taken_at < self.interval:
            return self.last
        polling, loop = self._polling, asyncio.get_running_loop()
        if polling is None or polling.done() or polling.get_loop() is not loop:
            polling = self._polling = loop.create_task(self._take())
            polling.add_done_callback(seen)
        # Not awaited itself: a client that leaves, or has no time left, must not take it from those that stay.
        done, _ = await asyncio.wait({polling}, timeout=patience)
        if done:
            return polling.result()
        if self.last is not None and self.age < OLDEST and self._error is None:
            return self.last
        raise self._error or redis.TimeoutError(f"no answer within {patience:g} s")

    async def exact(self) -> Snapshot:
        """A snapshot with all numbers read at once; of very many shards they take turns, and `age` is higher."""
        snapshot = await self.get()
        return snapshot if snapshot.is_exact else await run_in_threadpool(self._poll.exact)

    async def _take(self) -> Snapshot:
        try:
            snapshot = await run_in_threadpool(self._poll)
        except Exception as error:
            self._error = error.with_traceback(None)
            raise
        self._error = None
        self.last, self._taken_at = snapshot, clock.monotonic()
        return snapshot


def seen(task: asyncio.Task[Any]) -> None:
    """A task's error need not be logged if nobody waited for it any longer."""
    if not task.cancelled():
        task.exception()


class _Poll:
    """Reads snapshots, and keeps what spans several of them: whose turn it is of the shards, and the rates."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._number = 0
        self._seen: dict[str, ShardMetrics] = {}  # by prefix
        self._next_shard = 0
        self._meter = Meter(backend)
        self._look = Look(backend.caller, backend.namespace, backend.thresholds, marks=True)
        self._alone = threading.Lock()
        #: Prefix of a shard → when its numbers were read.
        self._read_at: dict[str, float] = {}
        self._exact: Snapshot | None = None
        self._exact_at = 0.0

    def __call__(self) -> Snapshot:
        with self._alone:
            return self._read(SHARDS_A_POLL)

    def exact(self) -> Snapshot:
        """One for all who ask within a second: it reads as many shards as it may."""
        with self._alone:
            if self._exact is None or clock.monotonic() - self._exact_at >= INTERVAL:
                self._exact, self._exact_at = self._read(EXACT_SHARDS), clock.monotonic()
            return self._exact

    def _read(self, most: int) -> Snapshot:
        backend, began = self._backend, clock.monotonic()
        layouts = backend.layouts()
        shards = self._read_shards(shards_of(backend.namespace, layouts), most)
        queues = by_queue(layouts, shards)
        nodes = judge(read_health(backend.caller, backend.namespace), shards, backend.caller.met.now())
        reshards = read_moving(backend.caller, backend.namespace, layouts)
        found = self._noted(self._look(nodes, shards, queues, reshards))
        rates = self._meter(clock.monotonic(), queues, found.at)
        self._number += 1
        return Snapshot(
            number=self._number,
            at=found.at,
            layouts=layouts,
            shards=shards,
            queues=queues,
            rates=rates,
            total=total(queues.values()),
            total_rate=sum_of(rates.values()),
            nodes=nodes,
            server=found.server,
            alerts=found.alerts,
            reshards=reshards,
            placements=self._read_placements(nodes),
            live=found.live,
            began=began,
            oldest=min(self._read_at.values(), default=began),
        )

    def _read_placements(self, nodes: Nodes) -> Mapping[tuple[str, int], Placement]:
        """Where no node shares by itself, there are none."""
        is_shared = any(node.is_elastic for node in nodes.nodes)
        return read_placements(self._backend.caller, self._backend.namespace) if is_shared else {}

    def _noted(self, found: Found) -> Found:
        """Where no node notes since when alerts last, this view does; a Redis that can be read only is no failure."""
        try:
            return self._look.note_if_nobody_does(found)
        except ResponseError:
            return found

    def _read_shards(self, shards: Sequence[Shard], most: int) -> list[ShardMetrics]:
        """Metrics of all shards, after reading those never seen before and those whose turn it is."""
        turn = [*shards, *shards][self._next_shard : self._next_shard + min(most, len(shards))]
        self._next_shard = (self._next_shard + len(turn)) % max(len(shards), 1)
        due = {shard.prefix: shard for shard in [*(s for s in shards if s.prefix not in self._seen), *turn]}
        read_at = clock.monotonic()
        self._seen.update(zip(due, read_shards(self._backend.caller, list(due.values())), strict=True))
        self._seen = {shard.prefix: self._seen[shard.prefix] for shard in shards}
        self._read_at |= dict.fromkeys(due, read_at)
        self._read_at = {prefix: self._read_at[prefix] for prefix in self._seen}
        return list(self._seen.values())
