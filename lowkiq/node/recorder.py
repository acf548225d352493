"""
Recorder: the node's turn at looking at all queues, for their history and for shards that nobody has, and at Redis, for
what has changed since boot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import structlog

from lowkiq.admin.history import record, take_turn
from lowkiq.admin.metrics import by_queue, known_queues, read_shards
from lowkiq.errors import RedisUnsuitable
from lowkiq.node.fostering import Fostering
from lowkiq.queue.call import Caller
from lowkiq.queue.push import register
from lowkiq.queue.shard import shards_of
from lowkiq.transport.connect import check_server

logger = structlog.get_logger("lowkiq")


class Recorder:
    """
    Called at each beat; one node of all finds that it is its turn.

    Args:
        queues: those of the node, with their shards_count: it makes them known again if Redis has lost everything.
    """

    def __init__(self, caller: Caller, namespace: str, node: str, queues: Mapping[str, int]) -> None:
        self._caller = caller
        self._namespace = namespace
        self._node = node
        self._queues = queues
        self._foster = Fostering(caller, namespace)
        self._may_look_at_server = True
        #: Complaints that the log has told of, and that still stand.
        self._told: set[str] = set()

    def __call__(self) -> None:
        complaints = [str(error) for error in register(self._caller, self._namespace, self._queues)]
        if take_turn(self._caller, self._namespace, self._node):
            self._record()
        self._tell(complaints + self._complaints_of_server())

    def _record(self) -> None:
        queues = known_queues(self._caller, self._namespace)
        shards = shards_of(self._namespace, queues)
        metrics = read_shards(self._caller, shards)
        record(self._caller, self._namespace, by_queue(queues, metrics))
        self._foster(list(zip(shards, metrics, strict=True)))

    def _complaints_of_server(self) -> list[str]:
        """At boot the node would have refused this Redis; a node that runs goes on, as stopping would save nothing."""
        try:
            if self._may_look_at_server:
                self._may_look_at_server = check_server(self._caller.client)
        except RedisUnsuitable as error:
            return [str(error)]
        return []

    def _tell(self, complaints: Iterable[str]) -> None:
        complaints = set(complaints)
        for complaint in sorted(complaints - self._told):
            logger.error("redis_unsuitable", error=complaint)
        self._told = complaints
