"""Doorbell: one thread that listens for pushes to shards which this node believes idle, and wakes their pool."""

from __future__ import annotations

import contextlib
import math
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from redis.exceptions import RedisError

from lowkiq import clock
from lowkiq.admin.beats.hands import HAND
from lowkiq.node.leases.lease import Lease
from lowkiq.node.mishaps import LastingThread
from lowkiq.node.pool import Pool
from lowkiq.node.runtime import Runtime
from lowkiq.queue import keys
from lowkiq.queue.places import PLACE
from lowkiq.transport.subscription import Subscription

#: Rings for a shard in which somebody has cancelled a job that runs (cancel.lua).
CANCEL = b"cancel"
#: Rings for a shard that somebody has paused (pause.lua).
PAUSE = b"pause"
#: Rings for a shard that has got letters by somebody else than its owner (letters.lua).
LETTERS = b"letters"
#: Rings for a shard in which a job was made to recur (recur.lua).
RECURS = b"recurs"
#: Rings for a shard that the node whose part it is asks for (acquire.lua).
WANTED = b"wanted"
#: Seconds after which the thread checks whether it is to stop.
LISTEN = 1.0
#: Seconds ahead that a ring may name: shards are polled meanwhile.
MOST_AHEAD: Final = 3_600.0
#: Seconds between tries to listen again, with jitter.
RETRY = 0.5


class Doorbell(LastingThread):
    """
    Wakes the pools of shards with jobs due, and calls `hear` when the node itself is asked for something. `calls` has
    what else a ring may say of a shard, and who is to know.

    A bell that is missed costs no more than `poll_interval`: pools poll, and poll at once when it works again. Renewals
    tell of cancelled jobs and paused shards.
    """

    def __init__(
        self,
        runtime: Runtime,
        pools: Mapping[Lease, Pool],
        calls: Mapping[bytes, Callable[[Lease], None]],
        hear: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__("lowkiq-doorbell", runtime.mishaps)
        self._runtime = runtime
        self._by_prefix = {lease.shard.prefix.encode(): lease for lease in pools}
        self._pools = pools
        self._hear = hear
        self._calls = calls
        #: Set once the node can be rung.
        self.is_listening = threading.Event()

    def follow(self, leases: Iterable[Lease]) -> None:
        """Wakes the pools of these shards from here on."""
        self._by_prefix = {lease.shard.prefix.encode(): lease for lease in leases}

    def stop(self) -> None:
        self._is_over.set()

    def _work(self) -> None:
        while not self._is_over.is_set():
            try:
                self._listen()
            except (RedisError, OSError) as error:
                self._runtime.outage.met(error)
                time.sleep(RETRY * random.uniform(0.5, 1.5))  # noqa: S311 (spreads load)

    def _listen(self) -> None:
        bell = keys.doorbell(self._runtime.namespace, self._runtime.node)
        with Subscription(self._runtime.caller.client, self._runtime.caller.leave, bell) as subscription:
            while not self._is_over.is_set():
                if (message := subscription.get(LISTEN)) is None:
                    continue
                if message["type"] == "message":
                    self._ring(message["data"])
                elif message["type"] == "subscribe":
                    # Also after the client has connected again by itself.
                    self._runtime.outage.over()
                    self.is_listening.set()
                    for pool in dict.fromkeys(list(self._pools.values())):
                        pool.poll_soon()

    def _ring(self, data: Any) -> None:
        prefix, _, rest = data.partition(b" ")
        if data == HAND:
            self._hear()
        elif prefix == PLACE:
            self._hear_of_place(rest)
        elif call := self._calls.get(prefix):
            if rest in self._by_prefix:
                call(self._by_prefix[rest])
        elif (lease := self._by_prefix.get(prefix)) and (pool := self._pools.get(lease)):
            pool.wake(lease, clock.monotonic() + _seconds(rest, MOST_AHEAD))

    def _hear_of_place(self, message: bytes) -> None:
        """It is this node's turn for a place of a queue (places.lua)."""
        prefix, _, due_in = message.rpartition(b" ")
        for places in self._runtime.places.values():
            if places.prefix.encode() == prefix:
                places.ring(_seconds(due_in, LISTEN))


def _seconds(text: bytes, most: float) -> float:
    """Seconds that a ring names; anybody may publish, so what is no number says that it is time to look."""
    with contextlib.suppress(ValueError):
        seconds = float(text)
        return 0.0 if math.isnan(seconds) else max(0.0, min(seconds, most))
    return 0.0
