"""Pauser: pauses queues again and again, and records from when to when each of them must have stood still."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Final

from redis.exceptions import RedisError

from lowkiq import Worker
from tests.chaos.journal import Journal, now
from tests.chaos.world.world import World

#: Seconds between two pauses on average, how long one lasts at least and at most, and how long nodes are waited for.
EVERY: Final = 2.0
LASTS: Final = (0.3, 2.5)
WAIT: Final = 4.0
#: Seconds between tries to resume while Redis is away.
AGAIN: Final = 0.2


class Pauser(threading.Thread):
    """One thread, beside the faults."""

    def __init__(self, world: World, seed: int, directory: Path) -> None:
        super().__init__(daemon=True)
        self._workers = list(world.app.workers.values())
        self._random = random.Random(f"{seed} pauses")
        self._journal = Journal(directory / "pauses.jsonl")
        self._is_over = threading.Event()

    def run(self) -> None:
        while not self._is_over.wait(self._random.expovariate(1 / EVERY)):
            worker = self._random.choice(self._workers)
            since = self._pause(worker)
            self._is_over.wait(self._random.uniform(*LASTS))
            until = now()
            self._resume(worker)
            if since is not None:
                self._journal.write("pause", q=worker.queue_name, since=since, until=until)

    def stop(self) -> None:
        self._is_over.set()
        self.join()

    def _pause(self, worker: type[Worker]) -> float | None:
        """When it has returned, and said that nothing starts any more; None if it has not said so."""
        try:
            reply = worker.actions.pause("chaos", who="the tests", wait=WAIT)
        except RedisError:
            return None
        return now() if reply.is_confirmed else None

    def _resume(self, worker: type[Worker]) -> None:
        while True:
            try:
                worker.actions.resume(who="the tests")
            except RedisError:
                threading.Event().wait(AGAIN)
            else:
                return
