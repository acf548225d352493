"""Heartbeat: one thread that tells Redis, for people to see, that the node lives and how it is."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import msgspec
import structlog
from redis.exceptions import RedisError

from lowkiq.store import keys
from lowkiq.store.call import Call, Caller

logger = structlog.get_logger("lowkiq")

#: Seconds between beats.
INTERVAL = 5.0
#: Seconds after which a node that has not beaten is forgotten: five beats may be lost.
TTL = 30


class Heartbeat(threading.Thread):
    """
    Args:
        health: gives what is told, as JSON can hold it.
    """

    def __init__(self, caller: Caller, namespace: str, node: str, health: Callable[[], dict[str, Any]]) -> None:
        super().__init__(name="lowkiq-heartbeat", daemon=True)
        self._caller = caller
        self._namespace = namespace
        self._node = node
        self._health = health
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Ends the thread, and tells Redis that the node is gone."""
        self._stopping.set()

    def run(self) -> None:
        while True:
            self._beat()
            if self._stopping.wait(INTERVAL):
                self._farewell()
                return

    def _beat(self) -> None:
        try:
            self._caller.run(Call("beat", [keys.nodes(self._namespace)], [self._node, 0], bytes))
            self._caller.client.set(keys.node(self._namespace, self._node), msgspec.json.encode(self._health()), ex=TTL)
        except RedisError as error:
            logger.debug("beat_failed", error=type(error).__name__)

    def _farewell(self) -> None:
        try:
            self._caller.run(Call("beat", [keys.nodes(self._namespace)], [self._node, 1], bytes))
            self._caller.client.unlink(keys.node(self._namespace, self._node))
        except RedisError as error:
            logger.debug("beat_failed", error=type(error).__name__)
