"""Queues, and the payloads of each."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

from lowkiq import Debounce, Rate

MAX_RETRY_COUNT: Final = 4
#: The share of payloads of a blocking queue that fail once.
BLOCKS: Final = 0.05


class Queue(NamedTuple):
    name: str
    shards_count: int
    batch_size: int
    #: Whether its producers give scores.
    is_scored: bool
    #: Seconds that a payload takes, at least and at most.
    seconds: tuple[float, float]
    #: Share of pushes that go here.
    share: float
    #: Batches of a shard at a time.
    concurrency: int | None = None
    #: Most of its payloads are short, and few are long.
    is_uneven: bool = False
    #: Only the first payload of an id takes its time.
    is_long_once: bool = False
    #: Where its jobs run.
    runs: Literal["on threads", "as tasks", "in processes"] = "on threads"
    #: Its first failure blocks a job, until somebody retries it.
    blocks: bool = False
    #: Batches of it that may run at once, on all nodes.
    max_running: int | None = None
    #: Seconds that a batch may take.
    perform_timeout: float | None = None
    #: How many of its jobs may start within a time.
    rate: Rate | None = None
    #: Its producers are tenants, with more and with fewer ids, that get equal shares.
    is_fair: bool = False
    #: Only the last payload of an id is kept; seconds between two starts of an id; and seconds that it waits for a
    #: pause in its pushes, at least and at most.
    keeps_last: bool = False
    throttle: float | None = None
    debounce: tuple[float, float] | None = None
    #: Numbers of shards that people give it, one after the other.
    reshards: tuple[int, ...] = ()

    @property
    def fewer(self) -> dict[str, Any]:
        """Options of its worker for fewer runs, which producers must know, too."""
        debounce = Debounce(*self.debounce) if self.debounce else None
        return {"keep": "last" if self.keeps_last else "all", "throttle": self.throttle, "debounce": debounce}


class Trouble(NamedTuple):
    """Misbehaviour of payloads, besides taking their time, and the share of those that show it."""

    share: float
    what: dict[str, Any]


class Load(NamedTuple):
    """Queues and troubles that producers push."""

    queues: tuple[Queue, ...]
    troubles: tuple[Trouble, ...]
    #: Of each node.
    threads: int = 4


#: Queue → the one to which each of its payloads follows once it is done; those before it first. Two make a pipeline of
#: three queues.
FOLLOWING: Final = {name: f"after-{name}" for name in ("batches", "tasks", "isolated", "after-batches", "after-tasks")}
#: Jobs of this one wait for others, which are of those.
WAITING: Final = "waiting"
WAITED_FOR: Final = ("batches", "unscored", "tasks", "isolated", "blocking", "fair")
#: The queue whose jobs take as long as that.
HALF_A_MINUTE: Final = "half-a-minute"
#: Queues that take their time to run dry: jobs that wait ask again, where an answer was lost, after a minute.
UNHURRIED: Final = frozenset({HALF_A_MINUTE, WAITING})
#: The queue whose jobs recur.
RECURRING: Final = "recurring"


class Recurs(NamedTuple):
    """How an id recurs."""

    #: Seconds.
    every: float
    missed: Literal["merge", "all"]


#: Id → how it recurs.
RECURS: Final = {
    f"{missed}-{every:g}": Recurs(every, missed) for every in (0.7, 1.5, 4.0) for missed in ("merge", "all")
}

LOADS: Final[Mapping[str, Load]] = {
    "mixed": Load(
        (
            Queue("singles", 4, 1, is_scored=True, seconds=(0, 0.01), share=0.15, concurrency=1),
            # Their shards share round trips.
            Queue("quick", 24, 1, is_scored=True, seconds=(0, 0.0005), share=0.15),
            Queue("batches", 4, 10, is_scored=True, seconds=(0, 0.004), share=0.1, reshards=(12, 5, 4)),
            Queue("unscored", 3, 5, is_scored=False, seconds=(0, 0.01), share=0.05, concurrency=5),
            Queue("slow", 6, 2, is_scored=True, seconds=(0, 0.2), share=0.147, concurrency=1),
            # What is pushed to hot ids of one shard waits for their own runs, and others pass by.
            Queue(
                "uneven",
                1,
                1,
                is_scored=True,
                seconds=(0, 0.6),
                share=0.15,
                concurrency=100,
                is_uneven=True,
                perform_timeout=2,
            ),
            Queue(
                "tasks",
                3,
                1,
                is_scored=True,
                seconds=(0, 0.3),
                share=0.1,
                runs="as tasks",
                perform_timeout=2,
                reshards=(2, 6),
            ),
            Queue(
                "tasks-of-five", 2, 5, is_scored=False, seconds=(0, 0.02), share=0.05, concurrency=3, runs="as tasks"
            ),
            Queue(
                "isolated", 3, 2, is_scored=True, seconds=(0, 0.1), share=0.1, runs="in processes", perform_timeout=2
            ),
            Queue("blocking", 3, 2, is_scored=True, seconds=(0, 0.01), share=0.05, blocks=True, reshards=(5, 2)),
            Queue("limited", 4, 2, is_scored=True, seconds=(0, 0.05), share=0.1, max_running=2, reshards=(3, 6)),
            Queue("limited-tasks", 2, 1, is_scored=True, seconds=(0, 0.1), share=0.05, runs="as tasks", max_running=3),
            Queue("rated", 3, 2, is_scored=True, seconds=(0, 0.01), share=0.02, rate=Rate(30, per=10), reshards=(2, 4)),
            Queue("fair", 2, 3, is_scored=True, seconds=(0, 0.02), share=0.1, is_fair=True, reshards=(5, 2)),
            Queue("kept", 3, 5, is_scored=True, seconds=(0, 0.05), share=0.1, keeps_last=True, reshards=(7, 1)),
            Queue(
                "throttled",
                3,
                5,
                is_scored=False,
                seconds=(0, 0.01),
                share=0.1,
                throttle=2,
                debounce=(0.2, 1),
                reshards=(4, 2),
            ),
            # Longer than a lease.
            Queue("longest", 2, 1, is_scored=True, seconds=(1.1, 2), share=0.003),
            # Longer than most of the nodes live.
            Queue(
                HALF_A_MINUTE,
                2,
                1,
                is_scored=True,
                seconds=(25, 30),
                share=0.001,
                concurrency=100,
                runs="as tasks",
                reshards=(3, 1),
                is_long_once=True,
            ),
            # What follows from jobs that are done, under their ids; no producer pushes here.
            *(
                Queue(name, 3, 5, is_scored=True, seconds=(0, 0), share=0, reshards=(5, 2))
                for name in FOLLOWING.values()
            ),
            Queue(WAITING, 3, 5, is_scored=True, seconds=(0, 0), share=0, reshards=(4, 1)),
            Queue(RECURRING, 4, 2, is_scored=True, seconds=(0, 0), share=0, reshards=(6, 3)),
        ),
        (
            Trouble(0.02, {"do": "fail", "tries": 1}),
            Trouble(0.005, {"do": "fail", "tries": 2}),
            Trouble(0.001, {"do": "fail", "tries": 1000}),
            Trouble(0.005, {"do": "raise", "tries": 1}),
            # Decides by itself what becomes of it.
            Trouble(0.01, {"do": "snooze", "tries": 1}),
            Trouble(0.005, {"do": "retry in", "tries": 1}),
            Trouble(0.001, {"do": "bury"}),
            Trouble(0.002, {"do": "pause"}),
            # Takes longer than perform_timeout, where its queue has one.
            Trouble(0.003, {"do": "overrun"}),
            # Keeps a checkpoint before it fails once, or goes on.
            Trouble(0.02, {"do": "keep", "tries": 1}),
            Trouble(0.02, {"do": "keep", "tries": 0}),
            Trouble(0.0003, {"do": "exit"}),
            Trouble(0.0005, {"do": "kill once"}),
            Trouble(0.0001, {"do": "kill"}),
        ),
    ),
    # Meets pauses with nearly every job, early in the life of a lease: what a fence is for.
    "pauses": Load(
        (Queue("slow", 24, 1, is_scored=True, seconds=(0.4, 0.8), share=1.0),),
        (Trouble(0.15, {"do": "pause"}),),
        threads=5,
    ),
}


#: Queue → batches of it that may run at once.
LIMITS: Final = {
    queue.name: queue.max_running for load in LOADS.values() for queue in load.queues if queue.max_running is not None
}


#: Queue → its rate.
RATES: Final = {queue.name: queue.rate for load in LOADS.values() for queue in load.queues if queue.rate}


def pick(load: Load, rng: random.Random) -> Queue:
    return rng.choices(load.queues, [queue.share for queue in load.queues])[0]


def payload(load: Load, queue: Queue, number: int, rng: random.Random) -> dict[str, Any]:
    """The payload of that number of an id; numbers make payloads of an id unequal, so that none merge."""
    seconds = rng.uniform(*queue.seconds) * (rng.random() ** 4 if queue.is_uneven else 1)
    if queue.is_long_once:  # and behaves well, or it would never be done
        return {"n": number, "s": round(seconds, 4) if number == 1 else 0}
    made: dict[str, Any] = {"n": number, "s": round(seconds, 4)}
    if queue.blocks:
        return made | ({"do": "fail once"} if rng.random() < BLOCKS else {})
    dice = rng.random()
    for trouble in load.troubles:
        if dice < trouble.share:
            is_pause = "pause" in trouble.what.values()
            return made | trouble.what | ({"for": round(rng.uniform(1.2, 3), 2)} if is_pause else {})
        dice -= trouble.share
    return made
