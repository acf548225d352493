"""
Durations: lengths of time in buckets whose bounds grow by a constant factor, so that those of several nodes add up
exactly, and any percentile of their sum is within ERROR of the true one.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Annotated, Final, Protocol

import msgspec
from msgspec import Meta

#: Buckets to each doubling. The value that a bucket stands for is off by at most (r - 1) / (r + 1), r = 2 ** (1 / 12):
#: 2.9 %. What is promised is 5 %, since clocks are read a little before and after what they measure.
PER_DOUBLING: Final = 12
ERROR: Final = (2 ** (1 / PER_DOUBLING) - 1) / (2 ** (1 / PER_DOUBLING) + 1)
#: Doublings of a millisecond: a length under the first (a microsecond) counts as 0, one over the last as 24 days.
FIRST, LAST = -10, 31
#: The lower bound of each bucket but number 0, in seconds: all the powers of two of a millisecond are among them.
BOUNDS: Final = [2 ** (number / PER_DOUBLING) / 1000 for number in range(FIRST * PER_DOUBLING, LAST * PER_DOUBLING + 1)]
#: Numbers of one in its text: count, total and squares, then a gap and a count for each bucket.
HEAD: Final = 3


class Due(Protocol):
    """A job, as far as its wait goes."""

    @property
    def perform_in(self) -> float: ...


_due = attrgetter("perform_in")


class Bucket(msgspec.Struct, frozen=True):
    """A bucket that holds something."""

    low: Annotated[float, Meta(description="Seconds that each of them is long at least.")]
    high: Annotated[float, Meta(description="Seconds that each is shorter than.")]
    count: int


class Durations:
    """Lengths of time, in seconds."""

    def __init__(self) -> None:
        self.count = 0
        self.total = self.squares = 0.0
        self._counts: dict[int, int] = {}

    def add(self, seconds: float, count: int = 1) -> None:
        """Adds one length so many times."""
        self._add(bisect_right(BOUNDS, seconds), seconds, count)

    def add_waits(self, jobs: Sequence[Due], until: float) -> None:
        """
        Adds the waits of jobs from when each was due; the first must be due first. Where several fall into one bucket,
        only the first and the last of them are looked at: a thousand jobs mostly cost as much as two.
        """
        first, end = 0, len(jobs)
        shortest = max(0.0, until - jobs[-1].perform_in)
        while first < end:
            longest = max(0.0, until - jobs[first].perform_in) if first + 1 < end else shortest
            bucket = bisect_right(BOUNDS, longest)
            to, last = end, shortest
            if bucket and shortest < BOUNDS[bucket - 1]:
                to = bisect_right(jobs, until - BOUNDS[bucket - 1], first + 1, end, key=_due)
                last = max(0.0, until - jobs[to - 1].perform_in)
            self._add(bucket, (longest + last) / 2, to - first)
            first = to

    def _add(self, bucket: int, seconds: float, count: int) -> None:
        self.count += count
        self.total += seconds * count
        self.squares += seconds * seconds * count
        self._counts[bucket] = self._counts.get(bucket, 0) + count

    def merge(self, other: Durations) -> None:
        """Adds all of another one's."""
        self.count += other.count
        self.total += other.total
        self.squares += other.squares
        for bucket, count in other._counts.items():
            self._counts[bucket] = self._counts.get(bucket, 0) + count

    @property
    def mean(self) -> float | None:
        """None of nothing."""
        return self.total / self.count if self.count else None

    @property
    def stddev(self) -> float | None:
        """The standard deviation; None of nothing."""
        if not self.count:
            return None
        return math.sqrt(max(self.squares / self.count - (self.total / self.count) ** 2, 0.0))

    def percentile(self, share: float) -> float | None:
        """A length that this share of all are no longer than, within ERROR; None of nothing."""
        rank, seen = math.ceil(share * self.count), 0
        for bucket, count in sorted(self._counts.items()):
            seen += count
            if seen >= rank:
                return _value(bucket)
        return None

    def at_most(self, number: int) -> int:
        """How many are under the bound of that number."""
        return sum(count for bucket, count in self._counts.items() if bucket <= number)

    @property
    def buckets(self) -> Iterator[Bucket]:
        """Those that hold something, the shortest first."""
        for bucket, count in sorted(self._counts.items()):
            low = BOUNDS[bucket - 1] if bucket else 0.0
            yield Bucket(low, BOUNDS[min(bucket, len(BOUNDS) - 1)], count)

    @property
    def text(self) -> str:
        """As Redis keeps it (add_times.lua): of the buckets each one's distance from the last one, and its count."""
        words, last = [f"{self.count}", f"{self.total:.17g}", f"{self.squares:.17g}"], 0
        for bucket, count in sorted(self._counts.items()):
            words += (str(bucket - last), str(count))
            last = bucket
        return " ".join(words)

    @classmethod
    def parse(cls, text: bytes) -> Durations:
        """Raises ValueError for what is none."""
        words, found, bucket = text.split(), cls(), 0
        if len(words) < HEAD or not len(words) % 2:
            raise ValueError("it has not the numbers of lengths of time")
        found.count = int(words[0])
        found.total, found.squares = float(words[1]), float(words[2])
        for gap, count in zip(words[HEAD::2], words[HEAD + 1 :: 2], strict=True):
            bucket += int(gap)
            found._counts[bucket] = int(count)
        numbers = [found.count, found.total, found.squares, *found._counts.values(), *found._counts]
        if not all(0 <= number < math.inf for number in numbers) or bucket > len(BOUNDS):
            raise ValueError("it has numbers that lengths of time can't have")
        if sum(found._counts.values()) != found.count:
            raise ValueError("its buckets hold another number than it says")
        return found


def _value(bucket: int) -> float:
    """The length that a bucket stands for: its distance to both bounds is the same share of them."""
    if bucket in {0, len(BOUNDS)}:
        return BOUNDS[-1] if bucket else 0.0
    low, high = BOUNDS[bucket - 1], BOUNDS[bucket]
    return 2 * low * high / (low + high)
