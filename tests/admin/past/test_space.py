"""A year of a hundred queues takes the space that the docs state."""

from __future__ import annotations

import random

import pytest

from lowkiq import Lowkiq
from lowkiq.admin.past.durations import Durations
from lowkiq.admin.past.history import SPANS
from lowkiq.admin.past.statistics import Addition, Times, add, day_of
from lowkiq.queue import keys

QUEUES, DAYS = 100, 365
#: Bytes a queue, as docs/operators.md states them: of its history, and of a year of its times.
HISTORY, TIMES = 80_000, 1_050_000


def lengths(chance: random.Random, median: float) -> Durations:
    """A day's lengths of time that vary widely: some are a hundred times the median."""
    found = Durations()
    for _ in range(3_000):
        found.add(chance.lognormvariate(0, 1.5) * median, 300)
    return found


@pytest.mark.rare
@pytest.mark.timeout(600)
def test_a_year_of_a_hundred_queues_takes_what_the_docs_state(app: Lowkiq) -> None:
    chance, redis, namespace = random.Random(7), app.redis(), app.settings.namespace
    now = redis.time()[0]
    times = [Times(lengths(chance, 0.5), lengths(chance, 0.05)) for _ in range(20)]
    free = redis.info("memory")["used_memory"]
    for queue in range(QUEUES):
        series = keys.history(namespace, f"queue-{queue:03}")
        for name, (seconds, step) in SPANS.items():
            points = (f"{now - n * step} 12345 1234 123 1234 123.456789 {10**9 + n} 1234567 {10**9 + n} 1234567"
                      for n in range(seconds // step, 0, -1))  # fmt: skip
            redis.rpush(f"{series}{name}", *points)
    history = redis.info("memory")["used_memory"] - free
    for number in range(DAYS):
        for first in range(0, QUEUES, 20):
            rows = [
                Addition(f"queue-{first + n:03}", day_of(now) - number, chance.choice(times)) for n in range(20)
            ]  # fmt: skip
            add(app.caller, namespace, "node", number * QUEUES + first + 1, rows)
    whole = redis.info("memory")["used_memory"] - free
    print(f"{history / QUEUES:,.0f} bytes of history, {(whole - history) / QUEUES:,.0f} of times a queue, {whole:,}")
    assert history <= HISTORY * QUEUES
    assert whole - history <= TIMES * QUEUES
