"""FollowingScenario: jobs from which others follow, that wait for others, a batch, and one that recurs."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections import Counter
from functools import partial
from typing import Any

import redis

from lowkiq import Lowkiq, Worker, current
from lowkiq.job import shard_of
from lowkiq.node import lease_keeper
from lowkiq.node.chores import post
from lowkiq.node.node import Node
from lowkiq.queue.letters import ASKS_AFTER
from tests.faults.failpoints.scenario import Scenario, wait_until

#: Id → its payloads; all of each follow. One fails at its first try, from which nothing does.
FIRST = {"several": (1, 2, 3), "fails once": (1,), "a": (1,), "b": (1,), "c": (1,), "d": (1,)}
#: Those of a batch.
BATCH = {"e": (1,), "f": (1,)}
#: What runs after all of the first, and at the end of the batch.
AFTER, SUM, TICKS = "after", "sum", "ticks"
#: Seconds after which what waits asks again, and within which it has.
ASK_AGAIN = 0.1
ASKED_WITHIN = 200.0
#: Keys that stay for good.
LASTING = {
    "queues", "nodes", "marker", *(f"{{{queue}:{index}}}:{name}" for queue in ("jobs", "follow") for index in (0, 1)
                         for name in ("meta", "owner", "recurring", "recurs", "recur_last")),
}  # fmt: skip


class FollowingScenario(Scenario):
    """The namespace of a pipeline of two queues."""

    def __init__(self, socket: str, namespace: str, *, is_counted: bool) -> None:
        super().__init__(socket, namespace)
        #: Each is pushed once, as no producer is struck, which may do all once more.
        self._is_counted = is_counted

    def with_worker(self, app: Lowkiq, *, is_fair: bool = False) -> tuple[Lowkiq, type[Worker]]:
        record = self.connect()

        @app.worker(queue_name="follow", shards_count=2)
        def follow(id: str, payloads: list[Any]) -> None:
            for payload in payloads:
                self._tell(record, "follow", id, payload)

        self.follow = follow

        act = partial(self._follow, record)

        @app.worker
        class Jobs(Worker):
            queue_name = "jobs"
            shards_count = 2
            batch_size = 2

            def retry_in(self, retry_count: int) -> float:
                return 0.01

            def perform(self, payloads_by_id: dict[str, list[int]]) -> None:
                for id, payloads in payloads_by_id.items():
                    act(id, payloads)

        return app, Jobs

    def _follow(self, record: redis.Redis, id: str, payloads: list[int]) -> None:
        """Does the work of a job, from which another one follows for each payload."""
        for payload in payloads:
            current().then(self.follow, [{"id": id, "payload": payload, "score": payload}], of=id)
        if id == "fails once" and record.incr(f"{self.own}:tries") == 1:
            raise ValueError("is to fail")
        if id == "d":  # until what waits for it has asked again; that it was struck there is looked at in the end
            with contextlib.suppress(TimeoutError):
                wait_until(lambda: self._has_asked_again(record), within=ASKED_WITHIN)
        for payload in payloads:
            self._tell(record, "end", id, payload)

    def _has_asked_again(self, record: redis.Redis) -> bool:
        """Whether AFTER has asked later than as it began to wait: then it asks next a minute after that."""
        prefix = f"{self.namespace}:{{follow:{shard_of(AFTER.encode(), 2)}}}:"
        since: Any = record.zscore(f"{prefix}held", AFTER)
        asks_at: Any = record.zscore(f"{prefix}asks", AFTER)
        return bool(since and asks_at and asks_at > since + ASKS_AFTER + ASK_AGAIN / 2)

    def push(self) -> None:
        app, jobs = self.plain()
        self._push(app, jobs)
        app.recurring.set(self.follow, TICKS, "1h", payload={}, missed="all")
        for shard in app.shards("follow", 2):
            if self.connect().hexists(f"{shard.prefix}recurring", TICKS):
                self.connect().zadd(f"{shard.prefix}recurs", {TICKS: time.time() - 5})

    def _push(self, app: Lowkiq, jobs: type[Worker]) -> None:
        self.follow.perform_async([{"id": AFTER, "payload": 0, "after": [(jobs, id) for id in FIRST]}])
        jobs.perform_async([{"id": id, "payload": n, "score": n} for id, payloads in FIRST.items() for n in payloads])
        # It is there before what it waits for, so it counts that as done: it is asked for once more by this.
        self.follow.perform_async([{"id": AFTER, "payload": 1, "after": [(jobs, id) for id in FIRST]}])
        with app.batch(on_done=(self.follow, {"id": SUM, "payload": 0}), name="sum") as batch:
            batch.push(jobs, [{"id": id, "payload": n, "score": n} for id, payloads in BATCH.items() for n in payloads])

    def run_producer(self) -> int:
        app, jobs = self.with_worker(self.watched())
        self._push(app, jobs)
        return 0

    def _run(self, node: Node) -> int:
        lease_keeper.RENEWALS_A_TTL = 400
        post.ASK_AGAIN = post.AGAIN_TO = ASK_AGAIN
        return node.run()

    def _direct(self, name: str) -> None:
        app, _ = self.plain()
        client = self.connect()
        wait_until(lambda: self._is_done(app, client))
        os.kill(os.getpid(), signal.SIGTERM)

    @staticmethod
    def _is_done(app: Lowkiq, client: redis.Redis) -> bool:
        shards = [shard for queue in ("jobs", "follow") for shard in app.shards(queue, 2)]
        if any(client.exists(f"{shard.prefix}outbox") for shard in shards):
            return False
        return all(row.length + row.busy == 0 for row in app.metrics().values())

    def claimed(self) -> int:
        app, _ = self.plain()
        return sum(row.busy for row in app.metrics().values())

    def wrongs(self, last: str, most_twice: int) -> list[str]:
        rows = [tuple(json.loads(row)) for row in self.connect().lrange(f"{self.own}:records", 0, -1)]
        followed = Counter((id, payload) for what, _, id, payload in rows if what == "follow" and id != TICKS)
        every = {(id, payload) for id, payloads in (FIRST | BATCH).items() for payload in payloads}
        wrongs = [f"did not follow: {one}" for one in every - followed.keys()]
        wrongs += [f"did not run: {id}" for id in (AFTER, SUM) if not any(one == id for one, _ in followed)]
        twice = {id for (id, _), times in followed.items() if times > 1}
        if len(twice) > most_twice:
            wrongs.append(f"{twice} followed twice, {most_twice} were in hand")
        wrongs += self._out_of_order((row for row in rows if row[2] in FIRST), "follow")
        return [*wrongs, *self._too_early(rows), *self._counted(rows), *self._left()]

    @staticmethod
    def _too_early(rows: list[Any]) -> list[str]:
        wrongs, ended = [], set()
        for what, _, id, payload in rows:
            if what == "end":
                ended.add((id, payload))
            for waits, others, first in ((AFTER, FIRST, 1), (SUM, BATCH, 0)):
                missing = {(one, n) for one, payloads in others.items() for n in payloads} - ended
                if what == "follow" and id == waits and payload == first and missing:
                    wrongs.append(f"{id} ran before {missing}")
        return wrongs

    def _counted(self, rows: list[Any]) -> list[str]:
        """What follows was pushed once, and what recurs fired once."""
        app, _ = self.plain()
        pushed, ticks = app.metrics()["follow"].pushed, {row[3]["due"] for row in rows if row[2] == TICKS}
        expected = sum(len(payloads) for payloads in (FIRST | BATCH).values()) + len((AFTER, AFTER, SUM, TICKS))
        if self._is_counted and (pushed != expected or len(ticks) != 1):
            return [f"{pushed} were pushed of {expected}, and {TICKS} ran for {ticks}"]
        return []

    def _left(self) -> list[str]:
        client = self.connect()
        names = {
            key.decode().removeprefix(f"{self.namespace}:"): key for key in client.scan_iter(f"{self.namespace}:*")
        }
        return [
            f"key left behind: {name}" for name, key in names.items() if name not in LASTING and client.ttl(key) == -1
        ]
