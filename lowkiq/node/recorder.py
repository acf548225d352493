"""Recorder: the node's turn at writing the history of all queues. It samples; charts are the web view's."""

from __future__ import annotations

from lowkiq.store.call import Caller
from lowkiq.store.history import record, take_turn
from lowkiq.store.metrics import known_queues, read_queues


class Recorder:
    """Called at each beat; one node of all finds that it is its turn."""

    def __init__(self, caller: Caller, namespace: str, node: str) -> None:
        self._caller = caller
        self._namespace = namespace
        self._node = node

    def __call__(self) -> None:
        if take_turn(self._caller, self._namespace, self._node):
            queues = known_queues(self._caller, self._namespace)
            record(self._caller, self._namespace, read_queues(self._caller, self._namespace, queues))
