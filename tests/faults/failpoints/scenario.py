"""Scenario of every failpoint: what a node and a producer do, and what must hold afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from typing import Any

import redis

from lowkiq import Bury, Debounce, Decision, Discard, Lowkiq, PartialFailure, Rate, RateLimited, Snooze, Worker, current
from lowkiq.errors import BeingResharded, CheckpointFailed
from lowkiq.job import NewJob, shard_of
from lowkiq.node import lease_keeper
from lowkiq.node.node import Node
from lowkiq.queue.homes import homes_of
from tests import support

#: Several of these processes run at a time, and to look costs them more than to wait: they look this often, in seconds.
wait_until = partial(support.wait_until, every=0.05)

#: What is pushed at first: several payloads, one that fails once, ones that always fail, one that can't be decoded,
#: ones that decide what becomes of them, a claim's worth of short jobs, one so long that others are settled meanwhile,
#: one that runs until it is cancelled, and some that ran when a node died; with tags, and without. An idle node gets
#: its own number.
SUSPECTS = ("suspect 0", "suspect 1", "suspect 2", "suspect 3")
#: The one that is tried, with nothing else beside it.
TRIED = "suspect 1"
FIRST = (
    *(NewJob(id=id, payload=1) for id in SUSPECTS),
    *(NewJob(id="several", payload=n, score=n, tags=["eu", "several"]) for n in (1, 2, 3)),
    NewJob(id="fails once", payload=1, tags=["eu"], keep="last", throttle=0.001),
    *(NewJob(id="kept", payload=n, score=n, keep="last", debounce=Debounce(0.01, at_most=0.1)) for n in (1, 2, 3)),
    *(NewJob(id="spared", payload=n, score=n, tags=["us"], throttle=0.001) for n in (1, 2)),
    *(NewJob(id="fails", payload=n, score=n, tags=["eu", "fails"]) for n in (1, 2)),
    NewJob(id="undecodable", payload=666),
    *(NewJob(id="snoozes", payload=n, score=n, tags=["eu"]) for n in (1, 2)),
    NewJob(id="is limited", payload=1),
    *(NewJob(id="buries itself", payload=n, score=n, tags=["eu"]) for n in (1, 2)),
    NewJob(id="discards itself", payload=1, tags=["us"]),
    *(NewJob(id=f"short {n}", payload=1) for n in range(6)),
    *(NewJob(id=f"short {n}", payload=1, tags=["us"]) for n in range(6, 12)),
    NewJob(id="long", payload=1),
    NewJob(id="cancelled", payload=1, tags=["us"]),
)
#: Those that are of tenants; it is told when they are pushed once more.
SHORT = tuple(job for job in FIRST if str(job["id"]).startswith("short"))
#: Jobs that keep something for their next run, and what.
KEEPERS, KEPT = ("long", "fails once"), "half of it"
#: Seconds after which a job has not learnt that it was cancelled: as long as a busy machine may need.
TOLD_WITHIN = 200.0
NUMBERS, FIRST_OF_NODE = {"first": 2, "second": 4}, {"first": 1, "second": 3}
MORGUE = {"fails": {1, 2}, "undecodable": {666}, "buries itself": {1, 2}}
#: Keys that stay for good; all others must have a time to live.
LASTING = ("queues", "nodes", "marker", "{jobs:0}:meta", "{jobs:0}:owner", "{jobs:1}:meta", "{jobs:1}:owner")
#: The number of shards that the queue is given where it moves, and what stays then.
MOVED_TO = 3
LASTING_MOVED = (
    "queues", "nodes", "marker", "{jobs:0}:meta", "{jobs:1}:meta",
    *(f"{{jobs@2:{index}}}:{name}" for index in range(MOVED_TO) for name in ("meta", "owner")),
)  # fmt: skip


class Scenario:
    """
    One namespace. `plain` is an application over connections that the tripwire leaves alone, `watched` makes one over
    those that it watches.
    """

    def __init__(
        self, socket: str, namespace: str, *, is_async: bool = False, is_limited: bool = False, is_moved: bool = False
    ) -> None:
        self.socket, self.namespace, self.is_async = socket, namespace, is_async
        #: Its queue is given other shards while a job of it runs.
        self.is_moved = is_moved
        #: At most one batch of the queue runs at a time.
        self.is_limited = is_limited
        self.own = f"of-the-test:{namespace}"

    def connect(self) -> redis.Redis:
        """Anew: a helper is forked while other threads may hold the locks of theirs."""
        return redis.Redis(unix_socket_path=self.socket)

    def plain(self) -> tuple[Lowkiq, type[Worker]]:
        return self.with_worker(Lowkiq(redis=self.connect, namespace=self.namespace))

    def watched(self, **settings: Any) -> Lowkiq:
        # Leases last, so that a slow machine loses none, and are renewed as often as if they were short.
        return Lowkiq(
            redis_url=f"unix://{self.socket}", namespace=self.namespace, lease_ttl=60, threads_per_node=2,
            poll_interval=0.2, load_payload=_load, **settings,
        )  # fmt: skip

    def with_worker(self, app: Lowkiq, *, is_fair: bool = False) -> tuple[Lowkiq, type[Worker]]:
        """An application with the queue; one that is fair pushes jobs of tenants, which take turns."""
        act, most = partial(self._act_all, self.connect()), 1 if self.is_limited else None

        @app.worker
        class Jobs(Worker):
            queue_name = "jobs"
            shards_count = 2
            max_retry_count = 1
            batch_size = 2
            max_running = most
            # Some of the short ones are put back for a moment; all others start at once.
            rate = Rate(8, per=0.3, by=lambda one, _: one.partition(" ")[0]) if most else None
            fair_by = _tenant_of if is_fair else None

            def retry_in(self, retry_count: int) -> float:
                return 0.01

            async def on_loop(self, payloads_by_id: dict[str, list[Any]]) -> None:
                for seconds in act(payloads_by_id):
                    await asyncio.sleep(seconds)

            def on_thread(self, payloads_by_id: dict[str, list[Any]]) -> None:
                for seconds in act(payloads_by_id):
                    time.sleep(seconds)

            perform: Any = on_loop if self.is_async else on_thread

        return app, Jobs

    def _act_all(self, record: redis.Redis, payloads_by_id: dict[str, list[int]]) -> Iterator[float]:
        """Does the work, and gives the seconds to sleep in between."""
        failed: dict[str, BaseException | str] = {}
        for id, payloads in payloads_by_id.items():
            if why := (yield from self._act(record, id, payloads)):
                failed[id] = why
        if failed:
            raise PartialFailure(failed)

    def _act(
        self, record: redis.Redis, id: str, payloads: list[int]
    ) -> Generator[float, None, BaseException | str | None]:
        """Does the work of a job; returns why it has failed, or what it has decided."""
        for payload in payloads:
            self._tell(record, "start", id, payload)
        if id in KEEPERS:
            self._keep(record, id)
        if id == "long":
            yield 0.4
        if id == "cancelled":
            deadline = time.monotonic() + TOLD_WITHIN
            while not current().cancelled and time.monotonic() < deadline:
                yield 0.01
            if not current().cancelled:
                self._tell(record, "never told", id, 1)
            return "is cancelled"
        if id == "fails" or (id == "fails once" and record.incr(f"{self.own}:tries") == 1):
            return "is to fail"
        decision = self._decide(record, id)
        if decision is None or isinstance(decision, Discard):
            for payload in payloads:
                self._tell(record, "end", id, payload)
        return decision

    def _decide(self, record: redis.Redis, id: str) -> Decision | None:
        match id:
            case "snoozes":
                return Snooze(0.01) if record.incr(f"{self.own}:naps") == 1 else None
            case "is limited":
                return RateLimited(0.01) if record.incr(f"{self.own}:limits") == 1 else None
            case "buries itself":
                return Bury("is to be buried")
            case "discards itself":
                return Discard("is done with")
        return None

    def _keep(self, record: redis.Redis, id: str) -> None:
        given = next(job.checkpoint for job in current().jobs if job.id == id)
        self._tell(record, "given", id, given and json.loads(given))
        with contextlib.suppress(CheckpointFailed):
            current().checkpoint(KEPT, id=id)
            if not self.is_async:  # else Redis has it some time before the outcome
                self._tell(record, "kept", id, KEPT)

    def _tell(self, record: redis.Redis, what: str, id: str, value: Any) -> None:
        record.rpush(f"{self.own}:records", json.dumps([what, os.getpid(), id, value]))

    # ── what processes do ───────────────────────────────────────────────────────────────────────────────────────────

    def run_node(self, name: str, dead: tuple[str, ...] = ()) -> int:
        """Runs a node until all is done, also what it gets while it is idle; then drains it. Returns the exit code."""
        app, _ = self.with_worker(self.watched())
        threading.Thread(target=self._direct, args=(name,), daemon=True).start()
        return self._run(Node(app, name=name, dead_nodes=dead))

    def run_impatient_node(self, name: str) -> int:
        """Runs a node until the long job runs; then it is to leave at once, and abandons that job."""
        app, _ = self.with_worker(self.watched(drain_timeout=0.1))
        threading.Thread(target=self._stop_in_long_job, daemon=True).start()
        return self._run(Node(app, name=name))

    def _run(self, node: Node) -> int:
        lease_keeper.RENEWALS_A_TTL = 400
        threading.Thread(target=self._cancel, daemon=True).start()
        threading.Thread(target=self._pause, daemon=True).start()
        return node.run()

    def _cancel(self) -> None:
        """Cancels the job that waits for it once a run of it has begun, be it before that of this process."""
        record = self.connect()
        wait_until(lambda: any(b'"cancelled"' in row for row in record.lrange(f"{self.own}:records", 0, -1)))
        app, jobs = self.plain()
        if self.is_moved:  # the run goes along with its id
            if app.queues() == {"jobs": 2} and not self._is_moving(jobs):
                jobs.actions.reshard(MOVED_TO, who="the tests")
            wait_until(lambda: not self._is_moving(jobs))
        wait_until(lambda: self._is_told(jobs))

    @staticmethod
    def _is_told(jobs: type[Worker]) -> bool:
        """While its shard moves, people are asked to try again."""
        with contextlib.suppress(BeingResharded):
            jobs.actions.cancel(["cancelled"])
            return True
        return False

    def _pause(self) -> None:
        """Pauses the queue for a moment once a job has begun, be it before that of this process: and so resumes it."""
        record = self.connect()
        wait_until(lambda: record.exists(f"{self.own}:records"))
        _, jobs = self.plain()
        jobs.actions.pause("stock-taking", wait=1.0)
        jobs.actions.resume()

    def _stop_in_long_job(self) -> None:
        record = self.connect()
        wait_until(lambda: any(b'"long"' in row for row in record.lrange(f"{self.own}:records", 0, -1)))
        os.kill(os.getpid(), signal.SIGTERM)

    def _direct(self, name: str) -> None:
        # Not before the node runs jobs, lest scripts be loaded for it.
        client = self.connect()
        wait_until(lambda: client.exists(f"{self.own}:records"))
        app, jobs = self.plain()
        wait_until(lambda: _is_idle(app))
        wait_until(lambda: not self._is_moving(jobs))
        # A job alone, with the default score, is handed over to a thread that listens, and finished in one; not if the
        # shard's last claim was not empty, as after what a struck node has left, nor a producer's first to a shard.
        jobs.perform_async([{"id": "last", "payload": FIRST_OF_NODE[name]}])
        wait_until(lambda: _is_idle(app))
        with contextlib.suppress(TimeoutError):
            wait_until(lambda: self._would_hand_over(client, name, "last"), within=1.0)
        jobs.perform_async([{"id": "last", "payload": NUMBERS[name]}])
        wait_until(lambda: _is_idle(app))
        os.kill(os.getpid(), signal.SIGTERM)

    def _would_hand_over(self, client: redis.Redis, name: str, id: str) -> bool:
        app, _ = self.plain()
        owner = homes_of(app.shards("jobs", 2), id.encode())[-1].prefix + "owner"
        bell = client.hget(owner, "bell")
        is_ours = client.hget(owner, "node") == name.encode() and client.hexists(owner, "open")
        return is_ours and isinstance(bell, bytes) and client.exists(f"{bell.decode()}:idle") == 1

    def run_producer(self) -> int:
        _, jobs = self.with_worker(self.watched())
        jobs.perform_async(FIRST)
        _, fair = self.with_worker(self.watched(), is_fair=True)
        fair.perform_async(SHORT)
        jobs.perform_async(FIRST[:3])
        return 0

    def run_awaiting_producer(self) -> int:
        """Pushes all jobs at once, each for itself: new ones that are plain first, then what is left by push_apart."""
        app, jobs = self.with_worker(self.watched())

        async def push() -> None:
            await jobs.aperform_async(FIRST[:2])
            singles = [*(job for job in FIRST[2:] if "score" not in job), *FIRST[:2]]
            singles += [job for job in FIRST if "score" in job]
            await asyncio.gather(*(jobs.aperform_async([job]) for job in singles))
            await app.aclose()

        asyncio.run(push())
        return 0

    def push(self) -> None:
        """Pushes like a producer that nothing happens to."""
        _, jobs = self.plain()
        jobs.perform_async(FIRST)
        _, fair = self.with_worker(Lowkiq(redis=self.connect, namespace=self.namespace), is_fair=True)
        fair.perform_async(SHORT)
        for id in SUSPECTS:
            prefix = f"{self.namespace}:{{jobs:{shard_of(id.encode(), 2)}}}:"
            self.connect().hset(f"{prefix}crashes", id, 1)
            self.connect().hset(f"{prefix}crowds", id, 2 if id == TRIED else 1)

    @staticmethod
    def _is_moving(jobs: type[Worker]) -> bool:
        told = jobs.queries.resharding()
        return told is not None and not told.is_over

    def claimed(self) -> int:
        app, _ = self.plain()
        return app.metrics()["jobs"].busy

    # ── what must hold ──────────────────────────────────────────────────────────────────────────────────────────────

    def wrongs(self, last: str, most_twice: int) -> list[str]:
        """Lists what is wrong at the end. `last` is the last node; at most so many ids may have run twice."""
        rows = [json.loads(row) for row in self.connect().lrange(f"{self.own}:records", 0, -1)]
        ended = Counter((id, payload) for what, _, id, payload in rows if what == "end")
        expected = {(job["id"], job["payload"]) for job in FIRST} | {("last", NUMBERS[last])}
        expected -= {("cancelled", 1), *(("kept", n) for n in (1, 2))}
        buried = {(id, payload) for id, payloads in MORGUE.items() for payload in payloads}
        wrongs = [f"lost: {missing}" for missing in expected - buried - ended.keys()]
        twice = {id for (id, _), times in ended.items() if times > 1}
        most_twice += self.is_async  # what shares a task with the cancelled job goes back
        if len(twice) > most_twice:
            wrongs.append(f"{len(twice)} ids ran twice, {most_twice} were in hand: {sorted(twice)}")
        return wrongs + self._out_of_order(rows) + self._not_given(rows) + self._in_the_wrong_place()

    @staticmethod
    def _not_given(rows: list[Any]) -> list[str]:
        wrongs = [f"never told that it was cancelled: {pid}" for what, pid, *_ in rows if what == "never told"]
        kept = set()
        for what, _, id, value in rows:
            if what == "kept":
                kept.add(id)
            elif what == "given" and value != KEPT and (id in kept or value):
                wrongs.append(f"{id} was given {value}, and had kept {KEPT if id in kept else None}")
        return wrongs

    @staticmethod
    def _out_of_order(rows: Iterable[Any], told: str = "start") -> list[str]:
        seen: dict[str, list[int]] = defaultdict(list)
        for what, _, id, payload in rows:
            if what == told and payload not in seen[id]:
                seen[id].append(payload)
        return [f"out of order: {id}: {payloads}" for id, payloads in seen.items() if payloads != sorted(payloads)]

    def _in_the_wrong_place(self) -> list[str]:
        app, jobs = self.plain()
        metrics = app.metrics()["jobs"]
        wrongs = [f"left: {metrics}"] if metrics.length or metrics.busy else []
        if app.queues() != {"jobs": MOVED_TO if self.is_moved else 2} or self._is_moving(jobs):
            wrongs.append(f"the shards are {app.queues()}")
        dead = {job.id: set(job.payloads) for job in jobs.queries.morgue_range_by_updated_at(limit=100)}
        if dead != MORGUE:
            wrongs.append(f"in the morgue: {dead}")
        jobs.actions.morgue_delete_all_jobs()
        client = self.connect()
        for key in client.scan_iter(f"{self.namespace}:*", count=1000):
            name = key.decode().removeprefix(f"{self.namespace}:")
            if name not in (LASTING_MOVED if self.is_moved else LASTING) and client.ttl(key) == -1:
                wrongs.append(f"key left behind: {name} ({client.type(key)!r})")
        return wrongs


def _is_idle(app: Lowkiq) -> bool:
    metrics = app.metrics()["jobs"]
    return metrics.length + metrics.busy == 0


def _load(data: bytes) -> Any:
    if data == b"666":
        raise ValueError("the number of the beast")
    return json.loads(data)


def in_child(log: str, run: Callable[[], int]) -> int:
    """Runs this in a process of its own; returns its pid."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        with open(log, "ab", 0) as file:  # noqa: PTH123
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        code = run()
    except BaseException:  # noqa: BLE001 (whatever it was, the child must not go on as its parent)
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _tenant_of(id: str, payload: int) -> int:
    return int(id.partition(" ")[2]) % 3
