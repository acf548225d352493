"""Random histories of one application twice: on lowkiq.testing, and on a real Redis with a real node's thread."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final
from unittest.mock import patch

from msgspec import structs

from lowkiq import (
    Bury,
    Debounce,
    Discard,
    Fixed,
    Job,
    Lowkiq,
    PartialFailure,
    Polynomial,
    Pushed,
    RetryIn,
    Snooze,
    Worker,
    testing,
)
from lowkiq.node.leases.lease import Lease
from lowkiq.node.threads import leases_of
from lowkiq.queue.call import Call
from lowkiq.queue.shard import peek
from lowkiq.testing.caller import DEEDS as ACTS
from lowkiq.testing.fake import Fake
from lowkiq.testing.model.shard_state import SECOND, ShardState
from lowkiq.testing.node import MOMENT
from tests.node.driven import acquire, runtime_of, thread_of
from tests.queue.model.read_state import read_state
from tests.queue.model.virtual_clock import VirtualClock
from tests.queue.shard_driver import ShardDriver

#: Seconds until a blocked job is due, and more.
NEVER: Final = 1e9
#: Where time begins, in microseconds.
BEGINNING: Final = 1_500_000_000 * SECOND
IDS: Final = ("a", "b", "c", "d", "e")
#: Whatever a job may do; one of these each time it runs.
FATES: Final[tuple[Callable[[], BaseException | None], ...]] = (
    lambda: None, lambda: None, lambda: None,
    lambda: ValueError("no"), lambda: TimeoutError("late"), lambda: KeyError("k"),
    lambda: Snooze(0), lambda: Snooze(40), lambda: RetryIn(7), lambda: Bury("never"), lambda: Discard("gone"),
)  # fmt: skip
SPOILED: Final = "spoiled"
#: The queues of an application, by whose names those of the same time go.
QUEUES: Final = ("q", "r")
#: What people do to a queue.
DEEDS_TO_ALL: Final = (
    "perform_all_jobs_now", "kill_all_failed_jobs", "delete_all_failed_jobs", "retry_all", "morgue_queue_up_all_jobs",
    "morgue_delete_all_jobs", "pause", "resume", "resume",
)  # fmt: skip
#: And to ids.
DEEDS: Final = (
    "cancel", "delete", "bury", "perform_now", "hold", "release", "retry", "skip", "morgue_queue_up", "morgue_delete",
)  # fmt: skip


def load(payload: bytes) -> Any:
    """Loads as a user's own might, and refuses one payload."""
    if payload == b"spoiled":
        raise ValueError("no such thing")
    return payload.decode()


class Stage:
    """A worker whose jobs do what the seed says, by how often their id has run, and tells of each run."""

    def __init__(self, seed: int, options: dict[str, Any], kind: str) -> None:
        self.seed, self.options, self.kind = seed, options, kind
        self.side: FakeSide | RealSide
        self.ran: list[tuple[str, tuple[tuple[str, tuple[Any, ...]], ...]]] = []
        self.gone: list[tuple[str, list[Any], str | None]] = []
        self._runs: Counter[tuple[str, str]] = Counter()

    def register(self, app: Lowkiq, queue: str) -> type[Worker[Any]]:
        stage = self

        def perform_one(_: Any, id: str, payloads: list[Any]) -> None:
            stage.ran.append((queue, ((id, tuple(payloads)),)))
            if error := stage.fate_of(worker, id):
                raise error

        async def perform_async(self: Any, id: str, payloads: list[Any]) -> None:
            perform_one(self, id, payloads)

        def perform(_: Any, payloads_by_id: dict[str, list[Any]]) -> None:
            stage.ran.append((queue, tuple((id, tuple(payloads)) for id, payloads in payloads_by_id.items())))
            errors = {id: error for id in payloads_by_id if (error := stage.fate_of(worker, id))}
            if errors:
                raise PartialFailure(errors)

        def retries_exhausted(_: Any, batch: list[Job]) -> None:
            stage.gone += [(job.id, job.payloads, job.error) for job in batch]

        kinds: dict[str, dict[str, Any]] = {
            "one": {"perform_one": perform_one},
            "async": {"perform_one": perform_async},
            "batch": {"perform": perform, "batch_size": 3},
        }
        members = {"retries_exhausted": retries_exhausted, "retry_in": lambda _, count: 11.0 * (count + 1)}
        if "retry" in self.options and not isinstance(self.options["retry"], dict):
            del members["retry_in"]
        kind = type("Jobs", (Worker,), members | kinds[self.kind])
        worker = app.worker(queue_name=queue, **self.options)(kind)
        return worker

    def fate_of(self, worker: type[Worker[Any]], id: str) -> BaseException | None:
        self._runs[worker.queue_name, id] += 1
        runs = self._runs[worker.queue_name, id]
        random = Random(f"{self.seed} {worker.queue_name} {id} {runs}")
        if random.random() < 0.1:
            self.side.act(worker, random.choice(["cancel", "delete", "hold", "bury"]), [random.choice([id, *IDS])])
        if random.random() < 0.15:
            self.side.push(worker, [{"id": random.choice(IDS), "payload": f"of {id} {runs}"}])
        return random.choice(FATES)()


class FakeSide:
    """The application on lowkiq.testing."""

    def __init__(self, app: Lowkiq, stage: Stage, jobs: Fake) -> None:
        self.workers = {queue: stage.register(app, queue) for queue in QUEUES}
        self.app, self._jobs, stage.side = app, jobs, self

    def push(self, worker: type[Worker[Any]], jobs: list[Any]) -> Pushed:
        return push_each(worker, jobs, lambda: None)

    def act(self, worker: type[Worker[Any]], deed: str, ids: list[str]) -> Any:
        return acted(worker, deed, ids)

    def drain(self, seconds: int, only: Sequence[str]) -> None:
        workers = None if len(only) == len(QUEUES) else [self.workers[queue] for queue in only]
        self._jobs.drain(until=f"+{seconds}s", only=workers)

    @property
    def states(self) -> list[ShardState]:
        return [model.state for worker in self.workers.values() for model in self._jobs._queue_of(worker)._models]


class RealSide:
    """The application on Redis, and a node's thread that is told when to look."""

    def __init__(self, app: Lowkiq, stage: Stage, clock: VirtualClock) -> None:
        self.workers = {queue: stage.register(app, queue) for queue in QUEUES}
        self.app, self._clock, stage.side = app, clock, self
        #: Of these a node's thread would ask again and again until it is told to rest.
        self._paused: set[str] = set()
        runtime = runtime_of(app)
        found = [lease for worker in self.workers.values() for lease in leases_of(runtime, worker)]
        self._leases = [acquire(lease, until=math.inf) for lease in found]
        self._thread = thread_of(runtime, *self._leases)
        # It settles before it claims again, be it of the same shard.
        self._thread.pool.keep = lambda *_: None  # type: ignore[method-assign]

    def push(self, worker: type[Worker[Any]], jobs: list[Any]) -> Pushed:
        return push_each(worker, jobs, lambda: self._clock.step(1))

    def act(self, worker: type[Worker[Any]], deed: str, ids: list[str]) -> Any:
        """Each of its calls a moment after the one before, as a fake has it."""
        if deed in {"pause", "resume"}:
            self._paused -= {worker.queue_name}
            self._paused |= {worker.queue_name} if deed == "pause" else set()
        caller = self.app.caller
        run_all, command = caller.run_all, caller.command

        def step(calls: Sequence[Call[Any]], *more: Any) -> list[Any]:
            self._clock.step(any(call.script in ACTS and not call.stamp for call in calls))
            return run_all(calls, *more)

        def ask(*words: Any) -> Any:
            return divmod(self._clock.now, SECOND) if words == ("TIME",) else command(*words)

        with patch.object(caller, "run_all", step), patch.object(caller, "command", ask):
            return acted(worker, deed, ids)

    def drain(self, seconds: int, only: Sequence[str]) -> None:
        until = self._clock.now + seconds * SECOND
        while (found := self._next(only)) and found[0] <= max(until, self._clock.now) + MOMENT:
            due, _, _, lease = found
            self._clock.set(max(due, self._clock.now))
            self._step(lease)
            while self._thread.in_hand:
                self._step()
        self._clock.set(max(until, self._clock.now))

    def _step(self, *due: Lease) -> None:
        """Has the thread look at these shards, and at no other that it knows to be due."""
        for lease in self._leases:
            self._thread.pool.learn(lease, None, math.inf)
        for lease in due:
            self._thread.pool.wake(lease, 0.0)
        self._thread._step()

    def _next(self, only: Sequence[str]) -> tuple[int, int, str, Lease] | None:
        """Time of the job that is due first, and its shard."""
        leases = [
            lease for lease in self._leases if lease.shard.queue in only and lease.shard.queue not in self._paused
        ]
        dues = self.app.caller.run(peek([lease.shard for lease in leases])) if leases else []
        found = [
            (self._clock.now + round(due_in * SECOND), lease.shard.index, lease.shard.queue, lease)
            for due_in, lease in zip(dues, leases, strict=True)
            if due_in is not None and due_in < NEVER
        ]
        return min(found, key=lambda one: one[:3], default=None)

    @property
    def states(self) -> list[ShardState]:
        return [
            read_state(ShardDriver(self.app, lease.shard.queue, lease.shard.index, worker.shards_count))
            for lease in self._leases
            for worker in [self.workers[lease.shard.queue]]
        ]


def acted(worker: type[Worker[Any]], deed: str, ids: list[str]) -> Any:
    """What somebody does to ids, and what is told of that."""
    if deed == "pause":
        return worker.actions.pause("it is winter", who="bob", wait=0).since
    more = {"reason": "it is summer", "who": "ann"} if deed == "hold" else {}
    return getattr(worker.actions, deed)(*[ids] * (deed in DEEDS), **more)


def seen(worker: type[Worker[Any]]) -> dict[str, Any]:
    """All that queries tell of a queue."""
    queries = worker.queries
    by_id: Callable[[Job], str] = lambda job: job.id  # noqa: E731
    return {
        "fetch": queries.fetch(IDS),
        "morgue_fetch": queries.morgue_fetch(IDS),
        "due": queries.range_by_perform_in(limit=3),
        "last": queries.rev_range_by_perform_in(max=f"({BEGINNING // SECOND + 1_050}", limit=4),
        "retries": queries.range_by_retry_count(),
        "most failed": queries.rev_range_by_retry_count(min=0, max=2),
        "morgue": queries.morgue_range_by_updated_at(),
        "newest": queries.morgue_rev_range_by_updated_at(limit=2),
        "blocked": queries.blocked(),
        "held": sorted(queries.held(), key=lambda hold: (hold.since, hold.id)),
        "find": sorted(queries.find("[a-c]*"), key=by_id),
        "of a tag": sorted(queries.find(tag="x"), key=by_id),
        "morgue_find": sorted(queries.morgue_find("[^a]"), key=by_id),
        "top": queries.top(),
        "behind newer": worker.actions.behind_newer(IDS),
    }


def push_each(worker: type[Worker[Any]], jobs: list[Any], tick: Callable[[], object]) -> Pushed:
    """One by one, each a moment after the one before, as a fake has it."""
    told = []
    for job in jobs:
        tick()
        told.append(worker.perform_async([job]))
    return Pushed(sum(one.new for one in told), sum(one.merged for one in told))


def options_of(random: Random) -> dict[str, Any]:
    """Options of a worker: any may be there or not."""
    options: dict[str, Any] = {
        "max_retry_count": random.randint(0, 3),
        "retry": random.choice(
            [
                Fixed(9, limit=1),
                Polynomial(base=5, power=2),
                {TimeoutError: Fixed(3), KeyError: Bury, OSError: Discard},
            ]
        ),
        "when_exhausted": random.choice(["bury", "block", "discard"]),
        "debounce": Debounce(6, at_most=15),
        "throttle": 20,
        "keep": random.choice(["last", "first"]),
        "max_payloads": 2,
    }
    shards_count = random.choice([1, 3])
    return {name: value for name, value in options.items() if random.random() < 0.35} | {"shards_count": shards_count}


def job_of(random: Random, number: int) -> dict[str, Any]:
    """A job that is pushed; some payloads are pushed several times."""
    job: dict[str, Any] = {
        "id": random.choice(IDS),
        "payload": random.choice([SPOILED, "same", f"p{number}", f"p{number}"]),
    }
    more: list[dict[str, Any]] = [
        {},
        {},
        {},
        {"delay": 30},
        {"score": random.randint(0, 9)},
        {"tags": ["x"]},
        {"keep": "last"},
    ]
    more += [{"perform_in": BEGINNING / SECOND + 1000 + random.randint(0, 99)}, {"throttle": None}]
    return job | random.choice(more)


def check_history(seed: int, real_app: Lowkiq, clock: VirtualClock, fake_app: Lowkiq) -> None:
    """Raises AssertionError, which names the seed, where the two differ."""
    random = Random(seed)
    options, kind = options_of(random), random.choice(["one", "batch", "async"])
    clock.set(BEGINNING)
    with testing.fake(fake_app, at=BEGINNING / SECOND) as jobs:
        fake = FakeSide(fake_app, fake_stage := Stage(seed, options, kind), jobs)
        real = RealSide(real_app, real_stage := Stage(seed, options, "batch" if kind == "batch" else "one"), clock)
        for step in range(random.randint(4, 10)):
            queue = random.choice("qqr")
            ours, theirs = fake.workers[queue], real.workers[queue]
            some = [job_of(random, step) for _ in range(random.randint(0, 6))]
            assert fake.push(ours, some) == real.push(theirs, some), f"history {seed}: what pushes tell"
            for _ in range(random.randint(0, 2)):
                deed, ids = random.choice([*DEEDS, *DEEDS, *DEEDS_TO_ALL]), random.sample(IDS, random.randint(1, 4))
                told, really = fake.act(ours, deed, ids), real.act(theirs, deed, ids)
                assert told == really, f"history {seed}: what {deed} of {ids} tells: {told} != {really}"
            seconds, only = random.choice([0, 1, 10, 60, 600]), random.choice([QUEUES, QUEUES, "q", "r"])
            fake.drain(seconds, only)
            real.drain(seconds, only)
            assert fake_stage.ran == real_stage.ran, f"history {seed}: what ran, in which order, with which payloads"
            for mine, other in zip(fake.states, real.states, strict=True):
                compare(seed, mine, other)
            if random.random() < 0.3:
                look(seed, fake, real)
        look(seed, fake, real)
        assert fake_stage.gone == real_stage.gone, f"history {seed}: what retries_exhausted was told"
        assert round(jobs.now * SECOND) == clock.now, f"history {seed}: the time"


def look(seed: int, fake: FakeSide, real: RealSide) -> None:
    """Holds against each other what people see."""
    # A node says that it starts nothing more as it renews its leases, which here nobody does.
    numbers = {name: structs.replace(one, restless=0) for name, one in real.app.metrics().items()}
    assert fake.app.metrics() == numbers, f"history {seed}: metrics: {fake.app.metrics()} != {numbers}"
    for queue in QUEUES:
        told, really = seen(fake.workers[queue]), seen(real.workers[queue])
        for name in told:
            assert told[name] == really[name], f"history {seed}: {queue}: {name}: {told[name]} != {really[name]}"


def compare(seed: int, fake: ShardState, real: ShardState) -> None:
    """Holds what both keep of jobs against each other; of the node that owns them each has its own."""
    names = ("queued", "claims", "morgue", "errors", "counters", "checkpoints", "rules", "spaced", "debounced", "held")
    for name in (*names, "cancelled", "paused"):
        ours, theirs = getattr(fake, name), getattr(real, name)
        assert ours == theirs, f"history {seed}: {name}: {ours} != {theirs}"
