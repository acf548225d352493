"""
Trials: gives one suspect at a time a start of its own in its whole tree of processes (tree_page.py).

A suspect runs in a process of its own, so its death mostly tells all. Not so where a whole tree dies with it, as a
container does: then whoever ran may have done it. The one that is tried starts while nothing else runs in its tree, if
that comes about in a moment; others begin nothing for a second at most, and what runs already goes on.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from lowkiq import clock
from lowkiq.errors import ProcessDied
from lowkiq.handlers.performer import Performer
from lowkiq.handlers.retries import Failures
from lowkiq.job import Job
from lowkiq.node.helpers.fork_server import ForkServer
from lowkiq.node.helpers.helper import HelperEnded
from lowkiq.node.helpers.helper_performer import HelperPerformer, claim_here
from lowkiq.node.runtime import Runtime
from lowkiq.queue.call import Call
from lowkiq.queue.claims import load_all
from lowkiq.queue.shard import Crashed
from lowkiq.shared_page import SharedPage


class SuspectPerformer(HelperPerformer):
    """
    As for a worker with isolation="process", but the death of the process is counted as that of a node is. Where no
    process can be had, or it can't begin, since `on_server_init` can't be called twice on a machine, say, the node
    performs it as any other job.
    """

    def __init__(self, in_node: Performer, runtime: Runtime, server: ForkServer) -> None:
        super().__init__(type(in_node.worker), runtime, server)
        self._in_node = in_node
        self.worker = in_node.worker

    def perform(self, batch: list[Job]) -> Failures | None:
        """Performs a batch of one. Returns what became of it, None when it is done; raises nothing."""
        self.live = self._in_node.live
        return super().perform(batch)

    def _after(self, batch: list[Job], ended: HelperEnded) -> Failures | None:
        if not ended.has_begun:
            claim_here().move_into_node()
            return self._perform_in_node(batch)
        if ended.error is None:
            return self._orphaned(batch, ended)
        return Failures(crashed=[Crashed(job.id, self._max_crashes) for job in batch])

    def _unheard(self, batch: list[Job], ended: HelperEnded) -> bool:
        here = self._in_node
        if not ended.has_begun and not any(load_all(job, here.load, here.check_id) for job in batch):
            return here.buried(batch, ProcessDied(batch[0].error or ""))
        return super()._unheard(batch, ended)

    def _failed(self, batch: list[Job], error: BaseException | str) -> Failures:
        return self._in_node._failed(batch, error) if not self._has_slow_hooks else super()._failed(batch, error)

    def _perform_in_node(self, batch: list[Job]) -> Failures | None:
        here = self._in_node
        if spoiled := [row for job in batch for row in load_all(job, here.load, here.check_id)]:
            return Failures(spoiled=spoiled)
        return here.perform(batch)


#: Deaths beside others, after the first, from which on a suspect is tried (deaths.lua).
TRIED: Final = 2
#: Seconds that it waits until nothing else runs.
GATHER: Final = 0.5
#: Seconds that others wait for it in all, if they have something to begin.
QUIET: Final = 1.0
#: So many times as long as they were held up, they are not again.
PAUSE: Final = 5
#: Seconds after which they go on though nobody has told them to: whoever tries has lost its way.
LOST: Final = 3.0
#: Seconds that what is tried has its turn before another one is, though it runs on: as many for each death, doubled.
TURN: Final = 1.0
LONGEST_TURN: Final = 60.0
#: Seconds between looks.
LOOK: Final = 0.005


class Claim(Protocol):
    """A claim in hand, as far as this knows it."""

    def isolate_call(self, id: str, *, is_alone: bool) -> Call[bool]:
        """Tells Redis that this job of it runs alone, or does so no longer."""


class Thread(Protocol):
    """Whoever performs, as far as this knows it."""

    @property
    def is_leaving(self) -> bool:
        """True if it is to begin nothing more."""


class Suspect(NamedTuple):
    """A job that runs alone."""

    claim: Claim
    id: str


class Trials:
    """One a node. Who waits holds no lock."""

    def __init__(self, page: SharedPage) -> None:
        self._tree, self._place = page.tree, page.place
        self._lock = threading.Lock()
        self._performing: set[Thread] = set()
        self._suspect: Suspect | None = None
        self._tried: Thread | None = None
        self._since = self._until = 0.0

    # ── for all that performs ───────────────────────────────────────────────────────────────────────────────────────

    def enter(self, thread: Thread, meanwhile: Callable[[], None] = lambda: None) -> bool:
        """
        Notes that a thread performs; waits while its tree is closed, and does `meanwhile` what those who perform need
        of it to end. False: it is to stop, and performs not.
        """
        tree = self._tree
        while True:
            with self._lock:
                self._performing.add(thread)
                tree.note_busy(self._place, len(self._performing))
                if not tree.is_closed:  # looked at after it was noted: so does who closes it, the other way round
                    return True
                self._leave(thread)
            if thread.is_leaving:
                return False
            tree.want()
            time.sleep(LOOK)
            meanwhile()

    def leave(self, thread: Thread) -> None:
        """Notes that the thread performs no more."""
        with self._lock:
            self._leave(thread)

    def _leave(self, thread: Thread) -> None:
        self._performing.discard(thread)
        self._tree.note_busy(self._place, len(self._performing))

    # ── for one that is tried ───────────────────────────────────────────────────────────────────────────────────────

    def begin(self, thread: Thread, crowds: int) -> float:
        """Gets the turn, and closes the tree; else returns the seconds after which to ask again."""
        now = clock.monotonic()
        if (rest := self._tree.next_at - now) > 0:
            return rest + random.uniform(0, QUIET)  # noqa: S311 (spreads load)
        with self._lock:
            if self._tried or not self._tree.take_turn():
                return random.uniform(QUIET, 2 * QUIET)  # noqa: S311
            self._tried = thread
        self._since, self._until = now, now + min(TURN * 2 ** (crowds - TRIED), LONGEST_TURN)
        self._tree.close_until(now + LOST)
        return 0.0

    def is_alone(self, is_off: Callable[[], bool]) -> bool:
        """Waits until nothing else performs in the tree; False if that takes too long, or `is_off` says so."""
        while self._tree.is_busy:
            if clock.monotonic() >= self._since + GATHER or is_off():
                return False
            time.sleep(LOOK)
        return not is_off()

    def run(self, thread: Thread, suspect: Suspect | None) -> None:
        """Notes that it runs: alone, as Redis knows; or beside others, with None."""
        with self._lock:
            self._suspect = suspect
            self._performing.add(thread)
            self._tree.note_busy(self._place, len(self._performing))
        if not suspect:
            self._open()

    def end(self, thread: Thread) -> None:
        with self._lock:
            self._leave(thread)
            self._suspect = None
            if self._tried is thread:
                self._open()
                self._end_turn()

    def overdue(self) -> Suspect | None:
        """The suspect for which others have waited as long as they may: Redis is to know, then they `share`."""
        suspect = self._suspect
        is_over = suspect and self._tree.is_wanted and clock.monotonic() >= self._since + QUIET
        return suspect if is_over else None

    def share(self, suspect: Suspect) -> None:
        """Lets others begin beside it, unless it has ended meanwhile."""
        with self._lock:
            if self._suspect is suspect:
                self._suspect = None
                self._open()

    def look(self) -> None:
        """Keeps the tree closed for one that is alone; ends the turn of one that has had it for long, and runs on."""
        now = clock.monotonic()
        with self._lock:
            if self._suspect:
                self._tree.close_until(now + LOST)
            elif self._tried and now >= self._until:
                self._end_turn()

    def _open(self) -> None:
        now = clock.monotonic()
        if self._tree.is_closed:
            held_up = min(now - self._since, QUIET) if self._tree.is_wanted else 0.0
            self._tree.open(now + PAUSE * held_up)

    def _end_turn(self) -> None:
        self._tried = None
        self._tree.end_turn()
