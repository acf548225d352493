"""
A producer's process: pushes numbered payloads of ids that are its own, and records what it sent and what was
acknowledged. Killed and started again it goes on after the highest number that it has sent.

Usage: python -m tests.chaos.producer NUMBER SEED
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from redis.exceptions import RedisError

from lowkiq import Lowkiq, PushFailed, Worker
from lowkiq.admin.jobs.undo import UndoableActions
from lowkiq.errors import BeingResharded
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
#: Pushes after which their ids are deleted, and put back at once; seconds for which that is tried.
DELETES, PUTS_BACK_WITHIN = 0.05, 40.0
#: Queues some of whose jobs have tags, the share of jobs that do, and tags.
TAGGED_QUEUES, TAGGED, TAGS = {"batches", "unscored", "uneven", "tasks", "isolated", "pauses"}, 0.5, ("eu", "us", "big")
#: The share of failed pushes that are not repeated: what has become of them, nobody can say.
GIVES_UP = 0.1
#: The share of pushes that are awaited one by one; of these that of event loops of their own, and of awaits that are
#: cancelled.
AWAITED, OWN_LOOP, CANCELLED = 0.5, 0.3, 0.03
#: Pushes beside which some are made that another job is to run after; jobs of these, at most; the share of batches, and
#: of those that wait for the one before them, too.
WAITED_FOR, MOST_WAITED_FOR, BATCHES, CHAINED = 0.08, 8, 0.4, 0.3
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
        #: Queue and id of what may have been pushed, or may still be.
        self._unsure: set[tuple[str, Any]] = set()
        self._numbers = self._numbers_sent()
        self._journal = journal.Journal(self._path)
        self._load = queues.LOADS[os.environ["CHAOS_LOAD"]]
        # Every other one has its jobs bring contexts of spans: they go where tags go.
        is_traced = number % 2 == 1
        if is_traced:
            trace.set_tracer_provider(TracerProvider())
        self._app = Lowkiq(client_pool_size=1, telemetry=is_traced)
        self._workers = {
            queue.name: self._app.worker(
                queue_name=queue.name,
                shards_count=queue.shards_count,
                fair_by=_tenant_of if queue.is_fair else None,
                **queue.fewer,
            )(lambda _: None)
            for queue in self._load.queues
        }
        #: Ids that wait for others, or have.
        self._waiting: list[str] = []
        self._runner = asyncio.Runner()
        self._is_over = False
        signal.signal(signal.SIGTERM, self._stop)

    def run(self) -> None:
        self._journal.write("start", via=os.environ["CHAOS_VIA"])
        look_at = 0.0
        while not self._is_over:
            time.sleep(self._rng.expovariate(1 / PAUSE))
            if time.monotonic() > look_at:
                self._wait_for_room()
                self._retry_blocked()
                look_at = time.monotonic() + 1
            self._push(queues.pick(self._load, self._rng))
            if self._rng.random() < WAITED_FOR and queues.WAITING in self._workers:
                self._push_after()

    def _push(self, queue: queues.Queue) -> None:
        made = [self._job(queue) for _ in range(int(min(self._rng.expovariate(0.2), 30)) + 1)]
        push = self._push_each if self._rng.random() < AWAITED else self._push_all
        ways = ("ways",) if push == self._push_each else ()
        if not self._noted(queue.name, made, lambda: push(self._workers[queue.name], made), *ways):
            return
        if self._rng.random() < CANCELS:
            self._cancel(queue.name, made[-1]["id"])
        elif self._rng.random() < DELETES and not queue.reshards:  # what was deleted before a move stays so
            # What of an id may still be on its way would overtake what is away meanwhile.
            self._delete_and_put_back(queue, [id for job in made if (queue.name, id := job["id"]) not in self._unsure])

    def _noted(self, queue: str, made: list[NewJob], push: Callable[[], bool], *uses: str) -> bool:
        """Records what is pushed, and pushes it; False if nobody can say what has become of it, which it records."""
        sent = [[job["id"], job["payload"]["n"], job["payload"].get("do"), *uses, *_uses(job)] for job in made]
        self._journal.write("push", q=queue, sent=sent)
        if push():
            return True
        self._journal.write("unsure")
        self._unsure.update((queue, job["id"]) for job in made)
        return False

    def _push_all(self, worker: type[Worker], made: list[NewJob]) -> bool:
        """Pushes all in one; False if nobody can say what has become of it."""
        return self._try(lambda: worker.perform_async(made))

    def _try(self, push: Callable[[], object]) -> bool:
        """Pushes until it is acknowledged; False if it gives up."""
        attempts = 0
        while not self._is_over:
            attempts += 1
            try:
                push()
            except PushFailed:
                if self._rng.random() < GIVES_UP:
                    break
            else:
                self._journal.write("ack", attempts=attempts)
                return True
        return False

    # ── what waits ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _push_after(self) -> None:
        """Pushes jobs of ids that are new, and another one that runs after them."""
        queue = self._rng.choice([queue for queue in self._load.queues if queue.name in queues.WAITED_FOR])
        fresh = [f"{self._number}-{time.monotonic_ns() + n}" for n in range(self._rng.randint(1, MOST_WAITED_FOR))]
        made = [self._job(queue, id) for id in fresh for _ in range(self._rng.randint(1, 2))]
        last: NewJob = {
            "id": f"{self._number}-w{time.monotonic_ns()}",
            "payload": {"n": 1, "s": round(self._rng.uniform(0, 0.3), 3)},
            "score": 1,
        }
        push = self._push_batch if self._rng.random() < BATCHES else self._push_dependent
        if push(queue.name, made, last):
            self._waiting.append(str(last["id"]))

    def _push_dependent(self, queue: str, made: list[NewJob], last: NewJob) -> bool:
        if not self._noted(queue, made, lambda: self._push_all(self._workers[queue], made)):
            return False
        others = [(queue, id) for id in dict.fromkeys(job["id"] for job in made)]
        if self._waiting and self._rng.random() < CHAINED:
            others.append((queues.WAITING, self._waiting[-1]))
        last["after"] = [(self._workers[name], id) for name, id in others]
        self._note_after(last, others)
        return self._noted(queues.WAITING, [last], lambda: self._push_all(self._workers[queues.WAITING], [last]))

    def _push_batch(self, queue: str, made: list[NewJob], last: NewJob) -> bool:
        """One that is given up stays open, until another one with the same job at the end goes on with it."""
        batch = self._app.batch(on_done=(self._workers[queues.WAITING], last), name="the only one")
        if not self._noted(queues.WAITING, [last], lambda: self._try(batch.__enter__)):
            return False
        if not self._noted(queue, made, lambda: self._try(lambda: batch.push(self._workers[queue], made)), "batch"):
            return False
        self._note_after(last, [(queue, job["id"]) for job in made])
        return self._try(lambda: batch.__exit__(None, None, None))

    def _note_after(self, last: NewJob, others: list[tuple[str, Any]]) -> None:
        """From now on it is to wait for all of theirs that was acknowledged before."""
        self._journal.write("after", q=queues.WAITING, id=last["id"], of=others)

    # ── awaited ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _push_each(self, worker: type[Worker], made: list[NewJob]) -> bool:
        """Pushes each for itself, those of different ids at a time, on a loop that lasts or on one of their own."""
        of_ids: dict[Any, list[NewJob]] = defaultdict(list)
        for job in made:
            of_ids[job["id"]].append(job)
        run = asyncio.run if self._rng.random() < OWN_LOOP else self._runner.run
        return run(self._await_all(worker, list(of_ids.values())))

    async def _await_all(self, worker: type[Worker], of_ids: list[list[NewJob]]) -> bool:
        are_sure = all(await asyncio.gather(*(self._await_id(worker, jobs) for jobs in of_ids)))
        if not are_sure:
            await self._app.aclose()  # waits for what may go on; what is pushed otherwise must not overtake it
        return are_sure

    async def _await_id(self, worker: type[Worker], jobs: list[NewJob]) -> bool:
        """Pushes those of an id one after the other."""
        acknowledged = 0
        for job in jobs:
            if attempts := await self._await_one(worker, job):
                self._journal.write("ack", one=[job["id"], job["payload"]["n"]], attempts=attempts)
                acknowledged += 1
        return acknowledged == len(jobs)

    async def _await_one(self, worker: type[Worker], job: NewJob) -> int:
        """Gives how many attempts it took; 0 if nobody can say what has become of it."""
        patience = self._rng.uniform(0, 0.01) if self._rng.random() < CANCELLED else None
        attempts = 0
        while not self._is_over:
            attempts += 1
            try:
                async with asyncio.timeout(patience):
                    await worker.aperform_async([job])
            except (PushFailed, TimeoutError) as error:
                if isinstance(error, TimeoutError) or self._rng.random() < GIVES_UP:
                    return 0
            else:
                return attempts
        return 0

    def _cancel(self, queue: str, id: Any) -> None:
        """Cancels a job: of what it has sent so far of that id, nothing need run any more."""
        number = self._numbers[queue, id]
        self._journal.write("cancel", q=queue, id=id, n=number)
        with contextlib.suppress(RedisError, BeingResharded):
            self._workers[queue].actions.cancel([id])
            self._journal.write("cancelled", q=queue, id=id, n=number)

    def _delete_and_put_back(self, queue: queues.Queue, ids: list[Any]) -> None:
        """Deletes jobs, and undoes that; if nobody can say what has become of it, they need not run."""
        named = [{"q": queue.name, "id": id, "n": self._numbers[queue.name, id]} for id in dict.fromkeys(ids)]
        for words in named:
            self._journal.write("cancel", **words)
        shards = self._app.shards(queue.name, queue.shards_count)
        actions = UndoableActions(self._app.caller, shards, max_id_bytes=self._app.settings.max_id_bytes)
        with contextlib.suppress(RedisError):
            deleted = actions.delete_and_keep("due", ids)
            if deleted.undo is None or self._put_back(actions, deleted.undo):
                for words in named:
                    self._journal.write("back", **words)

    def _put_back(self, actions: UndoableActions, name: str) -> bool:
        deadline = time.monotonic() + PUTS_BACK_WITHIN
        while not self._is_over and time.monotonic() < deadline:
            with contextlib.suppress(RedisError):
                actions.undo(name)
                return True
        return False

    def _job(self, queue: queues.Queue, id: str = "") -> NewJob:
        is_hot = self._rng.random() < 0.7
        id = id or f"{self._number}-{self._rng.randrange(HOT) if is_hot else HOT + self._rng.randrange(COLD)}"
        number = self._numbers[queue.name, id] = self._numbers[queue.name, id] + 1
        made: NewJob = {"id": id, "payload": queues.payload(self._load, queue, number, self._rng)}
        if self._poison > 0 and self._rng.random() < POISON:
            made["payload"]["do"] = "kill"
            self._poison -= 1
        if queue.is_scored:
            made["score"] = number
        if queue.name in TAGGED_QUEUES and self._rng.random() < TAGGED:
            made["tags"] = self._rng.sample(TAGS, self._rng.randint(1, len(TAGS)))
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

    def _retry_blocked(self) -> None:
        for queue in self._load.queues:
            if queue.blocks:
                with contextlib.suppress(RedisError):
                    self._workers[queue.name].actions.retry_all()

    def _numbers_sent(self) -> dict[tuple[str, str], int]:
        numbers: dict[tuple[str, str], int] = defaultdict(int)
        waiting: list[tuple[str, str, int]] = []
        for record in journal.read(self._path):
            if record["k"] == "push":
                self._unsure.update(row[:2] for row in waiting)
                waiting = [(record["q"], id, number) for id, number, *_ in record["sent"]]
                numbers |= {row[:2]: row[2] for row in waiting}
                self._poison -= sum(what == "kill" for _, _, what, *_ in record["sent"])
            elif record["k"] == "ack":
                one = record.get("one")
                waiting = [row for row in waiting if one and list(row[1:]) != one]
        self._unsure.update(row[:2] for row in waiting)
        return numbers

    def _stop(self, *_: object) -> None:
        self._is_over = True


def _uses(job: NewJob) -> list[str]:
    """Capabilities that a job has beside those of its queue (tests/chaos/meetings.py)."""
    return [name for key, name in (("tags", "tags"), ("perform_in", "delays")) if key in job]


def _tenant_of(id: Any, payload: Any) -> str | int:
    """A producer has two ids in three as one tenant; now and then an id changes hands, or is one by itself."""
    number, _, own = id.partition("-")
    if payload["n"] % 20 == 0:
        return str(id)
    return f"{number} and others" if int(own) % 3 else f"{number} of {int(own) % 7}"


if __name__ == "__main__":
    Producer(int(sys.argv[1]), int(sys.argv[2]), Path(os.environ["CHAOS_DIRECTORY"])).run()
