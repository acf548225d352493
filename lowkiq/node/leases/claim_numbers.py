"""ClaimNumbers: which claims of a shard are asked for, lost or open, by their numbers."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple


class Next(NamedTuple):
    """A number for the next claim."""

    number: int
    #: Claims before it whose replies were lost, and which are given back with it.
    unheard: tuple[int, ...]
    #: Claims that may be in Redis beside it: those in hand, and those on their way.
    known: list[int]


class ClaimNumbers:
    """Numbers within one epoch of a lease, whose lock guards them."""

    def __init__(self, last: int = 0) -> None:
        #: The number of the last claim.
        self.last = last
        #: Claims whose replies are on their way, and those whose replies were lost.
        self._asked: set[int] = set()
        self._unheard: set[int] = set()
        #: The claim that found nothing, into which a push may put its job.
        self.open = 0

    def next(self, in_hand: Collection[int]) -> Next:
        """A number for a claim that is asked for now."""
        known = sorted(self._asked.union(in_hand))
        self.last += 1
        self._asked.add(self.last)
        self.open = 0
        return Next(self.last, tuple(sorted(self._unheard)), known)

    def lost(self, number: int) -> None:
        """Notes that the reply to a claim was lost: it may have taken jobs."""
        if number in self._asked:
            self._asked.remove(number)
            self._unheard.add(number)

    def not_made(self, made: Next, unsettled: int | None, in_hand: Collection[int]) -> None:
        """Notes that a claim was refused, perhaps because of another one that Redis knows and nobody here does."""
        self._asked.discard(made.number)
        self._unheard.difference_update(made.unheard)
        if unsettled is not None and unsettled not in self._asked.union(in_hand):
            self._unheard.add(unsettled)

    def answered(self, made: Next, *, is_empty: bool) -> None:
        """Notes the reply to a claim. An empty one is open, unless a push has put a job into it, and that was heard."""
        self._unheard.difference_update(made.unheard)
        is_news = made.number in self._asked
        self._asked.discard(made.number)
        if is_empty and is_news and made.number == self.last:
            self.open = made.number

    def handed(self, number: int, *, may_run: bool) -> bool:
        """Notes that a push has put its job into that claim. False if it is not the open one, or nobody may run it."""
        if number in self._asked:  # its reply, that it is empty, is still on its way to another thread
            self._asked.remove(number)
        elif number != self.open or not may_run:
            return False
        self.open = 0
        return True
