"""
A producer's process: pushes numbered payloads of ids that are its own, and records what it sent and what was
acknowledged. Killed and started again it goes on after the highest number that it has sent.

Usage: python -m tests.chaos.producer NUMBER SEED
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from redis.exceptions import RedisError

from lowkiq import Lowkiq, PushFailed
from lowkiq.job import NewJob
from tests.chaos import journal
from tests.chaos.world import queues

#: Ids of each producer in each queue: few that get most of the payloads, and many that get one now and then.
HOT, COLD = 4, 40
#: Seconds between pushes, on average.
PAUSE = 0.1
#: Jobs of a producer that kill whatever performs them, at most, and the share that does until there were enough.
MOST_POISON, POISON = 8, 0.02
#: Pushes after which the last id is cancelled.
CANCELS = 0.02
#: Ids in the queues above which producers wait.
ENOUGH = 600


class Producer:
    """Numbers payloads, and pushes them until they are acknowledged or it gives up on them."""

    def __init__(self, number: int, seed: int, directory: Path) -> None:
        self._rng = random.Random(f"{seed} {number} {time.monotonic_ns()}")
        self._number = number
        self._path = directory / "producers" / f"{number}.jsonl"
        #: Jobs that are to kill their nodes: as many as the seed says, of one producer.
        self._poison = 1 + seed % MOST_POISON if number == 0 else 0
        self._numbers = self._numbers_sent()
        self._journal = journal.Journal(self._path)
        self._load = queues.LOADS[os.environ["CHAOS_LOAD"]]
        self._app = Lowkiq(client_pool_size=1)
        self._workers = {
            queue.name: self._app.worker(queue_name=queue.name, shards_count=queue.shards_count)(lambda _: None)
            for queue in self._load.queues
        }
        self._is_over = False
        signal.signal(signal.SIGTERM, self._stop)

    def run(self) -> None:
        self._journal.write("start", via=os.environ["CHAOS_VIA"])
        look_at = 0.0
        while not self._is_over:
            time.sleep(self._rng.expovariate(1 / PAUSE))
            if time.monotonic() > look_at:
                self._wait_for_room()
                look_at = time.monotonic() + 1
            self._push(queues.pick(self._load, self._rng))

    def _push(self, queue: queues.Queue) -> None:
        made = [self._job(queue) for _ in range(int(min(self._rng.expovariate(0.2), 30)) + 1)]
        sent = [[job["id"], job["payload"]["n"], job["payload"].get("do")] for job in made]
        self._journal.write("push", q=queue.name, sent=sent)
        attempt = 0
        while not self._is_over:
            attempt += 1
            try:
                self._workers[queue.name].perform_async(made)
            except PushFailed:
                if self._rng.random() < 0.1:  # what has become of it, nobody can say
                    break
            else:
                self._journal.write("ack", attempts=attempt)
                if self._rng.random() < CANCELS:
                    self._cancel(queue.name, made[-1]["id"])
                return
        self._journal.write("unsure")

    def _cancel(self, queue: str, id: Any) -> None:
        """Cancels a job: of what it has sent so far of that id, nothing need run any more."""
        number = self._numbers[queue, id]
        self._journal.write("cancel", q=queue, id=id, n=number)
        with contextlib.suppress(RedisError):
            self._workers[queue].actions.cancel([id])
            self._journal.write("cancelled", q=queue, id=id, n=number)

    def _job(self, queue: queues.Queue) -> NewJob:
        is_hot = self._rng.random() < 0.7
        id = f"{self._number}-{self._rng.randrange(HOT) if is_hot else HOT + self._rng.randrange(COLD)}"
        number = self._numbers[queue.name, id] = self._numbers[queue.name, id] + 1
        made: NewJob = {"id": id, "payload": queues.payload(self._load, queue, number, self._rng)}
        if self._poison > 0 and self._rng.random() < POISON:
            made["payload"]["do"] = "kill"
            self._poison -= 1
        if queue.is_scored:
            made["score"] = number
        if self._rng.random() < 0.05:
            made["perform_in"] = time.time() + self._rng.uniform(0, 1)
        return made

    def _wait_for_room(self) -> None:
        while not self._is_over:
            try:
                if sum(queue.length for queue in self._app.metrics().values()) < ENOUGH:
                    return
            except RedisError:
                return
            time.sleep(0.3)

    def _numbers_sent(self) -> dict[tuple[str, str], int]:
        numbers: dict[tuple[str, str], int] = defaultdict(int)
        for record in journal.read(self._path):
            for id, number, what in record.get("sent", ()):
                numbers[record["q"], id] = number
                self._poison -= what == "kill"
        return numbers

    def _stop(self, *_: object) -> None:
        self._is_over = True


if __name__ == "__main__":
    Producer(int(sys.argv[1]), int(sys.argv[2]), Path(os.environ["CHAOS_DIRECTORY"])).run()
