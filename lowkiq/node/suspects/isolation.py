"""
Isolation: gives the node to one suspect at a time, with nothing beside it.

A suspect is a job that ran when its node died. When several did, nobody knows which of them killed it, so each runs
alone before that is held against it. Threads pass by here once for all that they have in hand.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from lowkiq import clock
from lowkiq.queue.call import Call

#: Seconds that others are held, at first, until what they run has ended, and then by a suspect that takes long.
HOLD: Final = 5.0
#: So many times as long they then go on, if it has not ended by then, before they are held for twice as long.
PAUSE: Final = 5
#: Seconds after which suspects let others go on. They then have the node for as long as it was kept from them.
TURN: Final = 0.1
#: Seconds between looks whether a thread that waits is to stop.
LOOK: Final = 0.1


class Claim(Protocol):
    """A claim in hand, as far as isolation knows it."""

    def give_back(self) -> None:
        """Keeps the jobs that have not started from starting."""

    def isolate_call(self, id: str, *, is_alone: bool) -> Call[bool]:
        """Tells Redis that this job of it runs alone, or does so no longer."""


class Thread(Protocol):
    """A worker thread, as far as isolation knows it."""

    @property
    def in_hand(self) -> Sequence[Claim]:
        """The claims that it performs."""

    @property
    def is_leaving(self) -> bool:
        """True if it is to begin nothing more."""


class Suspect(NamedTuple):
    """A job that runs alone, and until when (monotonic)."""

    claim: Claim
    id: str
    until: float


class Isolation:
    """One a node. Who waits holds no lock, and what is held up keeps its leases."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._performing: set[Thread] = set()
        #: The thread whose suspects have the node, or wait for it; and since when.
        self._holder: Thread | None = None
        self._since = self._keep_until = 0.0
        #: Before that no suspect gets the node, and for so long others are held for it.
        self._next_at = 0.0
        self._hold = HOLD
        self._suspect: Suspect | None = None

    def enter(self, thread: Thread, meanwhile: Callable[[], None] = lambda: None) -> bool:
        """
        Notes that a thread performs; waits while suspects have the node, and does `meanwhile` what those who perform
        need of it to end. False: it is to stop, and performs not.
        """
        while True:
            with self._lock:
                if self._holder is None:
                    self._performing.add(thread)
                    return True
                if thread.is_leaving:
                    return False
                self._changed.wait(LOOK)
            meanwhile()

    def leave(self, thread: Thread) -> None:
        """Notes that the thread performs no more."""
        with self._lock:
            self._performing.discard(thread)
            if self._holder is not None:
                self._changed.notify_all()

    def busy_until(self, now: float) -> float:
        """When to ask for the node (monotonic); 0 for now."""
        return now + TURN if self._holder is not None else self._next_at if now < self._next_at else 0.0

    def begin(self, thread: Thread, is_off: Callable[[], bool]) -> bool:
        """
        Gets the node for suspects of that thread, once the others have ended the batches that they perform: what they
        have not started goes back. False if it is another's turn, that takes too long, or `is_off` says so meanwhile.
        """
        now = clock.monotonic()
        with self._lock:
            if self.busy_until(now):
                return False
            self._holder, self._since = thread, now
            others = list(self._performing)
        for other in others:
            for claim in other.in_hand:
                claim.give_back()
        with self._lock:
            rest = self._hold
            while self._performing and rest > 0 and not is_off():
                self._changed.wait(min(rest, LOOK))
                rest = now + self._hold - clock.monotonic()
            if not self._performing and not is_off():
                self._hold, self._keep_until = HOLD, clock.monotonic() + TURN
                return True
            self._holder = None
            if self._performing and rest <= 0:
                self._next_at = clock.monotonic() + PAUSE * self._hold
                self._hold *= 2
            self._changed.notify_all()
            return False

    def end(self, thread: Thread) -> None:
        """Gives the node back to all."""
        with self._lock:
            self._performing.discard(thread)
            self._suspect = None
            if self._holder is thread:
                self._let_others_go_on()

    def _let_others_go_on(self) -> None:
        now = clock.monotonic()
        self._next_at = now + (now - self._since)
        self._holder = None
        self._changed.notify_all()

    # ── a suspect that takes long ───────────────────────────────────────────────────────────────────────────────────

    def run(self, claim: Claim, id: str, crowds: int) -> None:
        """
        Notes that this suspect runs next. It is alone for twice as long as the last time, if that was not long enough
        and it then was one of several when a node died: `crowds` times by now. So even a job that kills its node after
        an hour is alone with it in the end.
        """
        with self._lock:
            self._suspect = Suspect(claim, id, clock.monotonic() + HOLD * 2**crowds)

    def overdue(self) -> Suspect | None:
        """The suspect that has been alone for too long: Redis is to know, then others `share` the node with it."""
        suspect = self._suspect
        return suspect if suspect and clock.monotonic() >= suspect.until else None

    def share(self, suspect: Suspect) -> None:
        """Lets others run beside it, unless it has ended meanwhile."""
        with self._lock:
            if self._suspect is suspect and self._holder is not None:
                self._performing.add(self._holder)
                self._suspect = None
                self._let_others_go_on()

    def is_kept(self, thread: Thread) -> bool:
        """Returns whether suspects of that thread have the node still, and may keep it."""
        return self._holder is thread and clock.monotonic() < self._keep_until
