"""
Housekeeping: the node's turn at checking all queues, for their history, for shards that nobody has and for alerts, and
Redis, for what has changed since boot.

Fostering gives shards of nodes that are away to nodes that are there, so that none stands still. While replicas change,
nodes disagree for a while on whose part a shard is, and some shards are nobody's; a machine may be gone for long. Then
a node stands in, and gives the shard back when its own node asks for it. Only leases say who runs a shard: all this
does is ask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from lowkiq.admin.alerts.alert import Thresholds
from lowkiq.admin.alerts.look import Look
from lowkiq.admin.beats.health import NodeHealth, read_health
from lowkiq.admin.beats.members import ask_to_foster, exchange_unowned
from lowkiq.admin.beats.moves import Moves
from lowkiq.admin.beats.nodes import judge
from lowkiq.admin.metrics import HOLDING, QueueMetrics, ShardMetrics, by_queue, read_counters, read_layouts, read_shards
from lowkiq.admin.past.history import record, take_turn
from lowkiq.admin.resharding import read_moving
from lowkiq.errors import OtherLayout, RedisUnsuitable
from lowkiq.log import get_logger
from lowkiq.node.runtime import Runtime
from lowkiq.queue.keys import Layout
from lowkiq.queue.layouts import opened
from lowkiq.queue.shard import Shard, shards_of
from lowkiq.queue.watch import Watch
from lowkiq.transport.connect import check_server

logger = get_logger()

#: Shards that the log names.
MOST_LOGGED: Final = 20


class Housekeeping:
    """
    Called at each beat; one node of all finds that it is its turn. `balance` has shards change nodes, `follow` hears
    which layouts the queues have; `declare` has what the code has recur again, as Redis has lost that.
    """

    def __init__(
        self,
        runtime: Runtime,
        balance: Callable[[Sequence[NodeHealth]], None] = lambda _: None,
        follow: Callable[[Mapping[str, Layout]], None] = lambda _: None,
        declare: Callable[[], None] = lambda: None,
    ) -> None:
        self._balance, self._follow, self._declare = balance, follow, declare
        self._caller = runtime.caller
        self._namespace = runtime.namespace
        self._node = runtime.node
        self._queues, self._layouts = runtime.queues, runtime.layouts
        self._refusals = runtime.refusals
        self._may_check_server, self._volatile_eviction = True, runtime.settings.volatile_eviction
        self._known: dict[str, Layout] = {}
        self._shards: Sequence[Shard] = ()
        self._look = Look(runtime.caller, runtime.namespace, Thresholds.of(runtime.settings), marks=True)
        self._moves = Moves(runtime.caller, runtime.namespace)
        self._watch = Watch[Shard](self._caller, lambda shard: shard, HOLDING)
        #: Complaints that the log has, and that still stand.
        self._complaints: set[str] = set()
        #: Prefixes of the shards without an owner that the log has.
        self._unowned: set[str] = set()

    def __call__(self) -> None:
        # The node's queues are made known again if Redis has lost everything.
        found = opened(self._caller, self._namespace, self._queues, self._layouts)
        self._refusals.of_queues({queue: one for queue, one in found.items() if isinstance(one, OtherLayout)})
        self._follow({queue: one for queue, one in found.items() if isinstance(one, Layout)})
        has_lost = self._look.has_lost()
        if take_turn(self._caller, self._namespace, self._node) or has_lost:
            self._record()
        if has_lost:
            self._declare()
        unreadable = [f"{one.key} can't be read: {one.why}" for one in self._caller.met.now()]
        self._log_complaints(self._complaints_of_server() + unreadable)

    def _record(self) -> None:
        queues = read_layouts(self._caller, self._namespace)
        if queues != self._known:
            self._known, self._shards = queues, shards_of(self._namespace, queues)
        holding = self._watch.holding(self._shards)
        held = set(holding)
        metrics = read_shards(self._caller, holding)
        empty = read_counters(self._caller, [shard for shard in self._shards if shard not in held])
        by_name = by_queue(queues, [*metrics, *empty])
        record(self._caller, self._namespace, by_name)
        self._foster([shard for shard, found in zip(holding, metrics, strict=True) if found.is_unowned])
        self._note_alerts([*metrics, *empty], by_name)

    def _note_alerts(self, shards: Sequence[ShardMetrics], queues: Mapping[str, QueueMetrics]) -> None:
        """Notes since when something is wrong: people must learn it, whenever they look."""
        nodes = judge(read_health(self._caller, self._namespace), shards, self._caller.met.now())
        self._balance(nodes.nodes)
        self._moves(nodes.nodes)
        reshards = read_moving(self._caller, self._namespace, self._known)
        self._look.note(self._look(nodes, shards, queues, reshards))

    def _complaints_of_server(self) -> list[str]:
        """At boot the node would have refused this Redis; a node that runs goes on, as stopping would save nothing."""
        try:
            if self._may_check_server:
                self._may_check_server = check_server(self._caller.client, volatile_eviction=self._volatile_eviction)
        except RedisUnsuitable as error:
            return [str(error)]
        return []

    def _log_complaints(self, complaints: Iterable[str]) -> None:
        complaints = set(complaints)
        for complaint in sorted(complaints - self._complaints):
            logger.error("redis_unsuitable", error=complaint)
        self._complaints = complaints

    def _foster(self, unowned: Sequence[Shard]) -> None:
        """
        Finds a node for each shard that nobody has had for two turns: after one, its own node may just be starting.
        A node that is asked and can't leaves it to the next turn, and to another node.
        """
        seen = exchange_unowned(self._caller, self._namespace, {shard.prefix for shard in unowned})
        left_alone = [shard for shard in unowned if shard.prefix in seen]
        self._log_unowned({shard.prefix for shard in left_alone})
        if left_alone:
            ask_to_foster(self._caller, self._namespace, dict.fromkeys(left_alone, ""), {})

    def _log_unowned(self, prefixes: set[str]) -> None:
        """Logs each once: shards of a queue without a worker have no taker, however often one asks."""
        if new := prefixes - self._unowned:
            logger.info("unowned_shards", shards=sorted(new)[:MOST_LOGGED], count=len(new))
        self._unowned = prefixes
