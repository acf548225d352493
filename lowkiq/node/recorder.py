"""Recorder: the node's turn at looking at all queues, for their history and for shards that nobody has."""

from __future__ import annotations

from lowkiq.node.fostering import Fostering
from lowkiq.store.call import Caller
from lowkiq.store.history import record, take_turn
from lowkiq.store.metrics import by_queue, known_queues, read_shards
from lowkiq.store.shard import shards_of


class Recorder:
    """Called at each beat; one node of all finds that it is its turn."""

    def __init__(self, caller: Caller, namespace: str, node: str) -> None:
        self._caller = caller
        self._namespace = namespace
        self._node = node
        self._foster = Fostering(caller, namespace)

    def __call__(self) -> None:
        if not take_turn(self._caller, self._namespace, self._node):
            return
        queues = known_queues(self._caller, self._namespace)
        shards = shards_of(self._namespace, queues)
        metrics = read_shards(self._caller, shards)
        record(self._caller, self._namespace, by_queue(queues, metrics))
        self._foster(list(zip(shards, metrics, strict=True)))
