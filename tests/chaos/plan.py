"""Plan: which fault comes when, from a seed alone. The same seed gives the same plan."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

#: Kind of fault → seconds between two of it on average, and how many seconds it lasts at least and at most.
FAULTS: Final[Mapping[str, tuple[float, float, float]]] = {
    "kill node": (1.5, 0, 0),
    "kill helper": (1.5, 0, 0),
    "kill fork server": (10, 0, 0),
    # Most outlast the lease of a second.
    "pause node": (0.7, 0.3, 3),
    "kill supervisor": (10, 0, 1),
    # All that it has started at the same moment, as a container dies that is out of memory.
    "kill tree": (20, 0, 1),
    "pause supervisor": (30, 0.5, 3),
    "term supervisor": (25, 0, 0.5),
    "hup supervisor": (12, 0, 0),
    "kill producer": (15, 0, 0.5),
    "kill redis": (8, 0, 2.5),
    "flush scripts": (4, 0, 0),
    "delay": (8, 0.2, 2),
    "drop replies": (8, 0.2, 2.5),
    "drop requests": (8, 0.2, 2.5),
    "late": (8, 0.3, 3),
    "reset": (4, 0, 0),
    "kill primary": (15, 0, 0),
    "fail over": (25, 0, 0),
    "move slots": (20, 0, 0),
}

#: Those that the proxy makes, those of a Redis that has replicas, and those of one that has not.
WEATHERS: Final = ("delay", "drop replies", "drop requests", "late", "reset")
REPLICATED: Final = ("kill primary", "fail over", "move slots")
ALONE: Final = ("kill redis", *WEATHERS)


class Fault(NamedTuple):
    #: Seconds from the beginning.
    at: float
    kind: str
    #: Which of those that it can hit: from 0 to 1.
    target: float
    seconds: float


def plan(seed: int, kinds: Mapping[str, tuple[float, float, float]] = FAULTS) -> Iterator[Fault]:
    """Faults for ever, in their order in time."""
    return heapq.merge(*(_of_kind(kind, random.Random(f"{seed} {kind}"), *kinds[kind]) for kind in kinds))


def _of_kind(kind: str, rng: random.Random, every: float, least: float, most: float) -> Iterator[Fault]:
    at = 0.0
    while True:
        at += rng.expovariate(1 / every)
        yield Fault(at, kind, rng.random(), rng.uniform(least, most))
