"""
Pauser: pauses queues again and again, and records from when to when each of them must have stood still; in between it
holds ids, changes live settings, and gives queues other numbers of shards.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from redis.exceptions import RedisError

from lowkiq import Worker
from lowkiq.errors import BeingResharded, LowkiqError
from tests.chaos.journal import Journal, now
from tests.chaos.world.queues import LOADS
from tests.chaos.world.world import World

#: Seconds between two pauses on average, how long one lasts at least and at most, and how long nodes are waited for.
EVERY: Final = 0.7
LASTS: Final = (0.2, 1.5)
WAIT: Final = 4.0
#: The share of holds, and producers whose ids they are of.
HOLDS: Final = 0.4
#: The share of rounds in which a queue gets other shards.
RESHARDS: Final = 0.3
#: The share of changes of settings that end them.
UNSETS: Final = 0.3
PRODUCERS: Final = 3
#: Seconds between tries to resume while Redis is away.
AGAIN: Final = 0.2


class Pauser(threading.Thread):
    """One thread, beside the faults."""

    def __init__(self, world: World, seed: int, directory: Path) -> None:
        super().__init__(daemon=True)
        self._by_name = world.app.workers
        self._workers = list(self._by_name.values())
        self._reshards = {
            queue.name: itertools.cycle(queue.reshards) for queue in LOADS["mixed"].queues if queue.reshards
        }
        self._random = random.Random(f"{seed} pauses")
        self._journal = Journal(directory / "pauses.jsonl")
        self._is_over = threading.Event()
        #: What was ever held.
        self._held: dict[type[Worker], set[str]] = {worker: set() for worker in self._workers}
        self.reshards = 0

    def run(self) -> None:
        while not self._is_over.wait(self._random.expovariate(1 / EVERY)):
            worker = self._random.choice(self._workers)
            with contextlib.suppress(RedisError):
                self._set(worker)
            if self._reshards and self._random.random() < RESHARDS:
                self._reshard(self._by_name[self._random.choice([*self._reshards])])
            if self._random.random() < HOLDS:
                self._hold(worker)
                continue
            since = self._pause(worker)
            self._is_over.wait(self._random.uniform(*LASTS))
            until = now()
            self._resume(worker)
            if since is not None:
                self._journal.write("pause", q=worker.queue_name, since=since, until=until)

    def stop(self) -> None:
        """Ends it. A failover may have lost what was resumed and let go: that is said once more."""
        self._is_over.set()
        self.join()
        for worker in self._workers:
            self._resume(worker)
            if ids := self._held[worker]:
                self._release(worker, [*ids])

    def _set(self, worker: type[Worker]) -> None:
        """Has its nodes go by other options from here on, or by those of the code again."""
        if self._random.random() < UNSETS:
            worker.actions.unset("concurrency", "batch_size", "weight", who="the tests")
        else:
            concurrency, batch_size = self._random.choice([None, 1, 3, 20]), self._random.choice([1, 2, 7])
            weight = self._random.choice([None, 1, 8, 100])
            worker.actions.set(concurrency=concurrency, batch_size=batch_size, weight=weight, who="the tests")

    def _reshard(self, worker: type[Worker]) -> None:
        queue = worker.queue_name
        with contextlib.suppress(RedisError, LowkiqError):  # one that goes on, and a queue that nobody has used yet
            worker.actions.reshard(next(self._reshards[queue]), who="the tests")
            self.reshards += 1
            self._journal.write("reshard", q=queue)

    def _hold(self, worker: type[Worker]) -> None:
        """Keeps ids from running for a while: what was pushed of them must run all the same, and in order."""
        ids = [f"{producer}-{number}" for producer in range(PRODUCERS) for number in range(self._random.randint(1, 8))]
        self._held[worker].update(ids)
        with contextlib.suppress(RedisError, BeingResharded):
            worker.actions.hold(ids, "chaos", who="the tests")
            self._journal.write("hold", q=worker.queue_name, ids=ids)
        self._is_over.wait(self._random.uniform(*LASTS))
        self._release(worker, ids)

    def _release(self, worker: type[Worker], ids: list[str]) -> None:
        self._again_and_again(lambda: worker.actions.release(ids, who="the tests"))

    def _resume(self, worker: type[Worker]) -> None:
        self._again_and_again(lambda: worker.actions.resume(who="the tests"))

    def _pause(self, worker: type[Worker]) -> float | None:
        """When it has returned, and said that nothing starts any more; None if it has not said so."""
        try:
            reply = worker.actions.pause("chaos", who="the tests", wait=WAIT)
        except (RedisError, LowkiqError):
            return None
        return now() if reply.is_confirmed else None

    @staticmethod
    def _again_and_again(act: Callable[[], object]) -> None:
        while True:
            try:
                act()
            except (RedisError, LowkiqError):  # the latter where a failover has lost a reshard that was known here
                threading.Event().wait(AGAIN)
            else:
                return
