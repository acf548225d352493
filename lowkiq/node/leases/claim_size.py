"""ClaimSize: how many jobs claims take, so that short jobs share a round trip and slow ones are not held back."""

from __future__ import annotations

from typing import Final

from lowkiq.queue.shard import MAX_CLAIM

#: One sample may be lucky: a claim holds at most this many times what the last one held.
GROWTH: Final = 8
#: Weight of the newest sample when jobs get faster. When they get slower it counts at once.
WEIGHT: Final = 0.2
#: Shards that a thread claims from at once, at most: with more of them little is gained.
MOST_SHARDS: Final = 16


class ClaimSize:
    """
    Keeps moving averages of how long a perform of one worker takes, and of how many of them a claim brings. Threads
    share it: of two that learn at once, one sample may be lost, which does no harm.

    Args:
        window: seconds of work that a claim takes.
        batch_size: ids that one perform gets: claims are whole batches.
    """

    def __init__(self, window: float, batch_size: int) -> None:
        self._window = window
        self.go_by(batch_size)
        self._batches = 1  # an unknown worker starts with one batch
        self._average: float | None = None
        #: Batches of claims that bring what may not start yet, and so take no time.
        self._refused = 0
        self._held = float(self._most)

    def go_by(self, batch_size: int) -> None:
        """Notes how many ids one perform gets from here on."""
        self._batch_size = batch_size
        self._most = max(MAX_CLAIM // batch_size, 1)

    @property
    def shards(self) -> int:
        """Shards that share a round trip: more of them where claims bring less than half of what they might."""
        return max(1, min(int(self._batches / (2 * self._held)), MOST_SHARDS))

    def share(self, shards: int) -> int:
        """Jobs to claim from each of so many shards."""
        return max(self._batches // shards, self._refused // shards, 1) * self._batch_size

    def within(self, seconds: float) -> int:
        """Jobs that start within so many seconds, one batch after the other: one batch at least."""
        fitting = 1 if self._average is None else self._most if self._average <= 0 else int(seconds / self._average)
        return min(max(fitting, 1), self._most) * self._batch_size

    def note_refused(self, jobs: int) -> None:
        """A claim brought so many jobs, of which none might start; 0: some might."""
        batches = -(-jobs // self._batch_size)
        self._refused = min(batches * GROWTH, self._most)

    def learn(self, performs: int, seconds: float) -> None:
        """A claim took `seconds` for so many performs."""
        self._held += WEIGHT * (performs - self._held)
        sample = seconds / performs
        smoothed = sample if self._average is None else self._average + WEIGHT * (sample - self._average)
        self._average = max(sample, smoothed)
        fitting = self._window / self._average if self._average > 0 else self._most
        self._batches = max(1, int(min(fitting, self._batches * GROWTH, self._most)))
