"""Heartbeat: one thread that tells Redis, for people to see, that the node lives and how it is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import structlog
from redis.exceptions import RedisError

from lowkiq import clock
from lowkiq.admin.nodes import BEAT_INTERVAL, NodeHealth, beat, forget
from lowkiq.node.outage import Outage
from lowkiq.queue.call import Caller

logger = structlog.get_logger("lowkiq")


class Heartbeat(threading.Thread):
    """
    Args:
        report: gives the health; gets the seconds that the last beat took.
        record: called after each beat, for the history.
        dead_nodes: names of nodes whose place this one has taken: they need not be waited for.
    """

    def __init__(
        self,
        caller: Caller,
        namespace: str,
        node: str,
        report: Callable[[float | None], NodeHealth],
        record: Callable[[], None],
        outage: Outage,
        dead_nodes: Sequence[str] = (),
    ) -> None:
        super().__init__(name="lowkiq-heartbeat", daemon=True)
        self._caller = caller
        self._namespace = namespace
        self._node = node
        self._report = report
        self._record = record
        self._outage = outage
        self._dead_nodes = dead_nodes
        self._stopping = threading.Event()
        self._soon = threading.Event()
        self._round_trip: float | None = None

    def beat_soon(self) -> None:
        """Something has changed that people wait to see."""
        self._soon.set()

    def stop(self) -> None:
        """Ends the thread, and tells Redis that the node is gone."""
        self._stopping.set()
        self._soon.set()

    def run(self) -> None:
        self._forget(self._dead_nodes)
        while not self._stopping.is_set():
            self._beat()
            self._soon.wait(BEAT_INTERVAL)
            self._soon.clear()
        self._forget([self._node])

    def _beat(self) -> None:
        try:
            health = self._report(self._round_trip)
            started = clock.monotonic()
            beat(self._caller, self._namespace, health)
            self._round_trip = clock.monotonic() - started
            self._record()
            self._outage.over()
        except RedisError as error:
            self._outage.met(error)
        except Exception:  # of a machine without free descriptors, say: the next one may do
            logger.exception("beat_failed")

    def _forget(self, nodes: Sequence[str]) -> None:
        try:
            for node in nodes:
                forget(self._caller, self._namespace, node)
        except RedisError as error:
            logger.debug("beat_failed", error=type(error).__name__)
