"""What a lease knows of those who use it: threads, claims in hand, and claims that are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

from lowkiq.node.leases.claim_numbers import Next
from lowkiq.queue.call import Call


class Runner(Protocol):
    """A worker thread, as far as a lease knows it."""

    def lasts_at(self, patience: float) -> float:
        """When what it has in hand lasts, at a batch of so many seconds (monotonic); inf while that can't be told."""


class Claimed(Protocol):
    """A claim in hand, as far as a lease knows it."""

    epoch: str
    number: int

    @property
    def is_away(self) -> bool:
        """It has outlived its node's hold of the shard, and has a lease of its own."""

    @property
    def ids(self) -> Iterable[str]:
        """The ids of its jobs, whatever became of them."""

    @property
    def has_unstarted(self) -> bool:
        """True if jobs wait for their turn in it."""

    def rest(self) -> None:
        """Has nothing of it start any more, as its shard was paused; the next settle returns it to the queue."""

    def leave(self, until: float) -> None:
        """Has nothing of it start any more, as its shard is left; what runs has a lease until then (monotonic)."""

    def renewed(self, asked_at: float, ttl: float) -> None:
        """Notes that its own lease was kept: it ends ttl seconds after it was asked for (monotonic)."""


class Asked(NamedTuple):
    epoch: str
    made: Next
    #: Makes its calls: the last one is the claim; those before it give back claims whose replies were lost.
    make_calls: Callable[[], list[Call[Any]]]

    @property
    def number(self) -> int:
        """The claim's number."""
        return self.made.number
