"""Random histories of one application twice: on lowkiq.testing, and on a real Redis with a real node's thread."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any, Final

from lowkiq import (
    Bury,
    Debounce,
    Discard,
    Every,
    Exponential,
    Job,
    Lowkiq,
    PartialFailure,
    Pushed,
    RetryIn,
    Snooze,
    Worker,
    testing,
)
from lowkiq.node.leases.lease import Lease
from lowkiq.node.threads import leases_of
from lowkiq.queue.shard import peek
from lowkiq.testing.fake import Fake
from lowkiq.testing.model.shard_state import SECOND, ShardState
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


def load(payload: bytes) -> Any:
    """Loads as a user's own might, and refuses one payload."""
    if payload == b"spoiled":
        raise ValueError("no such thing")
    return payload.decode()


class Stage:
    """A worker whose jobs do what the seed says, by how often their id has run, and tells of each run."""

    def __init__(self, seed: int, options: dict[str, Any], kind: str, push: Callable[[Any, list[Any]], object]) -> None:
        self.seed, self.options, self.kind, self.push = seed, options, kind, push
        self.ran: list[tuple[tuple[str, tuple[Any, ...]], ...]] = []
        self.gone: list[tuple[str, list[Any], str | None]] = []
        self._runs: Counter[str] = Counter()

    def register(self, app: Lowkiq) -> type[Worker[Any]]:
        stage = self

        def perform_one(_: Any, id: str, payloads: list[Any]) -> None:
            stage.ran.append(((id, tuple(payloads)),))
            if error := stage.fate_of(worker, id):
                raise error

        async def perform_async(self: Any, id: str, payloads: list[Any]) -> None:
            perform_one(self, id, payloads)

        def perform(_: Any, payloads_by_id: dict[str, list[Any]]) -> None:
            stage.ran.append(tuple((id, tuple(payloads)) for id, payloads in payloads_by_id.items()))
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
        worker = app.worker(queue_name="q", **self.options)(kind)
        return worker

    def fate_of(self, worker: type[Worker[Any]], id: str) -> BaseException | None:
        self._runs[id] += 1
        random = Random(f"{self.seed} {id} {self._runs[id]}")
        if random.random() < 0.15:
            self.push(worker, [{"id": random.choice(IDS), "payload": f"of {id} {self._runs[id]}"}])
        return random.choice(FATES)()


class FakeSide:
    """The application on lowkiq.testing."""

    def __init__(self, app: Lowkiq, stage: Stage, jobs: Fake) -> None:
        self.worker = stage.register(app)
        self._jobs = jobs

    def push(self, jobs: list[Any]) -> Pushed:
        return push_each(self.worker, jobs, lambda: None)

    def drain(self, seconds: int) -> None:
        self._jobs.drain(until=f"+{seconds}s")

    @property
    def states(self) -> list[ShardState]:
        return [model.state for model in self._jobs._queue_of(self.worker)._models]


class RealSide:
    """The application on Redis, and a node's thread that is told when to look."""

    def __init__(self, app: Lowkiq, stage: Stage, clock: VirtualClock) -> None:
        self.worker, self.app, self._clock = stage.register(app), app, clock
        runtime = runtime_of(app)
        self._leases = [acquire(lease, until=math.inf) for lease in leases_of(runtime, self.worker)]
        self._thread = thread_of(runtime, *self._leases)
        # It settles before it claims again, be it of the same shard.
        self._thread.pool.keep = lambda *_: None  # type: ignore[method-assign]

    def push(self, jobs: list[Any]) -> Pushed:
        return push_each(self.worker, jobs, lambda: self._clock.step(1))

    def drain(self, seconds: int) -> None:
        until = self._clock.now + seconds * SECOND
        while (found := self._next()) and found[0] <= max(until, self._clock.now):
            due, index = found
            self._clock.set(max(due, self._clock.now))
            self._step(self._leases[index])
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

    def _next(self) -> tuple[int, int] | None:
        """Time of the job that is due first, and the number of its shard."""
        dues = self.app.caller.run(peek([lease.shard for lease in self._leases]))
        found = [(due_in, index) for index, due_in in enumerate(dues) if due_in is not None and due_in < NEVER]
        return min([(self._clock.now + round(due_in * SECOND), index) for due_in, index in found], default=None)

    @property
    def states(self) -> list[ShardState]:
        count = len(self._leases)
        return [read_state(ShardDriver(self.app, "q", index, count)) for index in range(count)]


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
                Every(9, times=1),
                Exponential(base=5, power=2),
                {TimeoutError: Every(3), KeyError: Bury, OSError: Discard},
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
        stages: list[Stage] = []
        fake_stage = Stage(seed, options, kind, lambda _, some: fake.push(some))
        real_stage = Stage(seed, options, "batch" if kind == "batch" else "one", lambda _, some: real.push(some))
        stages += [fake_stage, real_stage]
        fake, real = FakeSide(fake_app, fake_stage, jobs), RealSide(real_app, real_stage, clock)
        for step in range(random.randint(4, 10)):
            some = [job_of(random, step) for _ in range(random.randint(0, 6))]
            assert fake.push(some) == real.push(some), f"history {seed}: what pushes tell"
            seconds = random.choice([0, 1, 10, 60, 600])
            fake.drain(seconds)
            real.drain(seconds)
            assert fake_stage.ran == real_stage.ran, f"history {seed}: what ran, in which order, with which payloads"
            for ours, theirs in zip(fake.states, real.states, strict=True):
                compare(seed, ours, theirs)
        assert fake_stage.gone == real_stage.gone, f"history {seed}: what retries_exhausted was told"
        assert round(jobs.now * SECOND) == clock.now, f"history {seed}: the time"


def compare(seed: int, fake: ShardState, real: ShardState) -> None:
    """Holds what both keep of jobs against each other; of the node that owns them each has its own."""
    for name in ("queued", "claims", "morgue", "errors", "counters", "checkpoints", "rules", "spaced", "debounced"):
        ours, theirs = getattr(fake, name), getattr(real, name)
        assert ours == theirs, f"history {seed}: {name}: {ours} != {theirs}"
