"""
Statistics: how long jobs of each queue waited and ran, by day, for a year, and in all. Nodes count in memory
(node/counts/times.py) and add to Redis with each beat: a node that dies loses what it has counted since its last one.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Annotated, Final, NamedTuple

import msgspec
from msgspec import Meta

from lowkiq.admin.past.durations import BOUNDS, Bucket, Durations
from lowkiq.queue import keys
from lowkiq.queue.call import Call, Caller, redis_time

#: Seconds of a day, and days for which sums are kept after they last changed.
DAY: Final = 86_400
KEPT_DAYS: Final = 365
#: Seconds for which the number of a node's last addition is kept: far longer than an addition is repeated.
NUMBER_KEPT: Final = 86_400
#: Sums that one script adds to: about 4 ms.
SUMS_A_CALL: Final = 50
#: Bytes of a sum that are read: it has at most 2,000 numbers, mostly under 300.
MOST_BYTES: Final = 32_768
#: Jobs that must have run before their usual time is told.
FEWEST: Final = 20


class Times(NamedTuple):
    """Waits and runs of jobs."""

    waits: Durations
    runs: Durations

    @classmethod
    def none(cls) -> Times:
        """Nothing yet."""
        return cls(Durations(), Durations())

    def merge(self, other: Times) -> None:
        """Adds all of another one's."""
        self.waits.merge(other.waits)
        self.runs.merge(other.runs)


class Lengths(msgspec.Struct, frozen=True):
    """Lengths of time, in seconds; null of nothing. Percentiles are within 5 % of the true ones."""

    count: int
    mean: float | None
    stddev: Annotated[float | None, Meta(description="The standard deviation.")]
    p50: float | None
    p95: float | None
    p99: float | None
    buckets: Annotated[list[Bucket], Meta(description="Those that hold something, the shortest first.")]

    @classmethod
    def of(cls, durations: Durations) -> Lengths:
        """What is told of these."""
        p50, p95, p99 = map(durations.percentile, (0.5, 0.95, 0.99))
        return cls(durations.count, durations.mean, durations.stddev, p50, p95, p99, list(durations.buckets))


class Statistics(msgspec.Struct, frozen=True):
    """Jobs of a queue on one day, in UTC by Redis's clock."""

    day: datetime.date
    wait: Annotated[Lengths, Meta(description="From when each try was due until it began, by the claim's day.")]
    run: Annotated[Lengths, Meta(description="In `perform`, of its batch, by the day of its end.")]


class Addition(NamedTuple):
    """What a node has counted of a queue on a day, numbered from days since 1970."""

    queue: str
    day: int
    times: Times


def add(caller: Caller, namespace: str, node: str, number: int, rows: Sequence[Addition]) -> bool:
    """Adds at most SUMS_A_CALL / 2 rows; `number` rises with each call of a node. False if that was done before."""
    names = [keys.added(namespace, node)]
    arguments: list[str | int | float] = [number, NUMBER_KEPT, KEPT_DAYS * DAY, MOST_BYTES, len(BOUNDS)]
    for queue, day, times in rows:
        names += (keys.times(namespace, queue, day), keys.times(namespace, queue))
        arguments += [f"{times.waits.text}|{times.runs.text}"] * 2
    return caller.run(Call("add_times", names, arguments, bool))


def day_of(at: float) -> int:
    """The number of a day, from 1970 on."""
    return int(at // DAY)


def date_of(day: int) -> datetime.date:
    """The date of a day."""
    return datetime.date(1970, 1, 1) + datetime.timedelta(days=day)


def number_of(date: datetime.date) -> int:
    """The number of a date's day."""
    return (date - datetime.date(1970, 1, 1)).days


def read_statistics(
    caller: Caller, namespace: str, queue: str, days: int, *, until: int | None = None
) -> list[Statistics]:
    """The days of the last `days` up to `until`, default: today, on which anything was counted, the oldest first."""
    last = day_of(redis_time(caller)) if until is None else until
    wanted = range(last - days + 1, last + 1)
    found = _read(caller, [keys.times(namespace, queue, day) for day in wanted])
    return [
        Statistics(date_of(day), Lengths.of(times.waits), Lengths.of(times.runs))
        for day, times in zip(wanted, found, strict=True)
        if times
    ]


def statistics_of(caller: Caller, namespace: str, queue: str, day: int) -> Statistics:
    """One day, if nothing was counted on it as well."""
    found = read_statistics(caller, namespace, queue, 1, until=day)
    nothing = Lengths.of(Durations())
    return found[0] if found else Statistics(date_of(day), nothing, nothing)


def read_totals(caller: Caller, namespace: str, queues: Sequence[str]) -> dict[str, Times]:
    """All that was ever counted of each queue: it only grows, as long as Redis keeps it."""
    found = _read(caller, [keys.times(namespace, queue) for queue in queues])
    return {queue: times for queue, times in zip(queues, found, strict=True) if times}


def usual(caller: Caller, namespace: str, queues: Sequence[str]) -> dict[str, float]:
    """
    Seconds that 99 of 100 jobs of a queue take at most, by today and yesterday; queues of which too few have run are
    left out. One round trip for all, and about 50 µs a queue here: ask about once a minute.
    """
    today = day_of(redis_time(caller))
    days = [keys.times(namespace, queue, day) for queue in queues for day in (today - 1, today)]
    found = iter(_read(caller, days))
    usual: dict[str, float] = {}
    for queue, some in zip(queues, zip(found, found, strict=True), strict=True):
        runs = Durations()
        for times in filter(None, some):
            runs.merge(times.runs)
        if runs.count >= FEWEST and (p99 := runs.percentile(0.99)) is not None:
            usual[queue] = p99
    return usual


def _read(caller: Caller, names: Sequence[str]) -> list[Times | None]:
    texts = caller.read([("GETRANGE", name, 0, MOST_BYTES) for name in names], b"")
    return [caller.met.whole(name, _times, text) for name, text in zip(names, texts, strict=True)]


def _times(text: bytes) -> Times:
    if len(text) > MOST_BYTES:
        raise ValueError("it is longer than lengths of time can be")
    waits, bar, runs = text.partition(b"|")
    if not bar:
        raise ValueError("it has not two parts")
    return Times(Durations.parse(waits), Durations.parse(runs))
