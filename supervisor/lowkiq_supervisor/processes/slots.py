"""
Slots: the places of the supervisor's processes, each of which outlives the processes that fill it one after another.

Responsible for a slot's state, deadlines and history, and for the order of all. Starts, signals and reaps nothing.
"""

from __future__ import annotations

import signal
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from lowkiq.shared_page import DeadNode
from lowkiq.tree_page import TreePage
from lowkiq_supervisor.processes.child import Child
from lowkiq_supervisor.restart_policy import WORDS, Kind, RestartHistory


class State(StrEnum):
    """Where a slot is in its life."""

    WAITING = "waiting"  # for what must be ready before it
    BACKOFF = "backoff"  # a start is due at `start_at`
    STARTING = "starting"
    READY = "ready"
    QUIET = "quiet"
    RETIRING = "retiring"
    DRAINING = "draining"
    KILLED = "killed"
    EXITED = "exited"


#: States of a process as its beats name them.
BY_BEAT = {state.value: state for state in (State.STARTING, State.READY, State.QUIET, State.RETIRING, State.DRAINING)}

#: States that show that a process got through its boot.
BOOTED = {State.READY, State.QUIET}


@dataclass(slots=True, kw_only=True)
class Slot:
    """One place, with what is known of its present and its past."""

    title: str
    #: Its place among those of this supervisor, and its node's number among all; None: not a node's.
    index: int | None = None
    number: int | None = None
    history: RestartHistory
    launch: Callable[[Slot], Child]
    #: Seconds between the order to end and the kill.
    grace: float
    #: What tells its process to end.
    end_signal: signal.Signals = signal.SIGTERM
    #: Seconds that its process has in all; None: no limit.
    lifetime: float | None = None
    state: State = State.WAITING
    child: Child | None = None
    #: Monotonic time of the next start, if one is due.
    start_at: float | None = None
    #: Monotonic time at which the process is killed, if it hasn't ended by then.
    kill_at: float | None = None
    #: Its process is to end for good: it will not be filled again.
    leaving: bool = False
    #: It was added, or is sent away, while the others run on: there are to be more nodes, or fewer.
    is_added: bool = False
    is_surplus: bool = False
    #: Failed too often to be filled again.
    given_up: bool = False
    #: Whether any of its processes has ever been ready.
    ever_ready: bool = False
    #: How many processes have failed here.
    failures: int = 0
    #: Since when it fails again and again (Unix time).
    failing_since: float | None = None
    #: Why its process is being replaced on purpose, until that has ended.
    replaced_for: str = ""
    #: How many processes were started here, and how many of them were to replace one on purpose.
    starts: int = 0
    replacements: int = 0
    #: How the last process ended, and what that was.
    last_exit: str = ""
    last_kind: Kind | None = None
    #: What it said itself of why it could not start.
    refusal: str = ""
    #: The last nodes that were here, and what they ran when they died.
    dead_nodes: deque[DeadNode] = field(default_factory=lambda: deque(maxlen=3))
    #: The slot for which this one, for a while, holds a process: its successor, and then its predecessor.
    beside: Slot | None = None

    def schedule(self, at: float) -> None:
        """Fill the slot at this time."""
        self.state = State.BACKOFF
        self.start_at = at

    def filled(self, child: Child) -> None:
        """A process has been started here."""
        self.child = child
        self.state = State.STARTING
        self.start_at = None
        self.kill_at = None if self.lifetime is None else time.monotonic() + self.lifetime
        self.starts += 1

    def emptied(self, how: str) -> None:
        """The process has ended and was reaped."""
        place = self.beside or self
        if self.child is not None and self.child.page is not None:
            place.dead_nodes.append(DeadNode(self.child.name, self.child.page.running()))
            self.refusal = self.child.page.refusal()
        self.child = self.kill_at = None
        self.last_exit, self.last_kind = how, None

    @property
    def works(self) -> bool:
        """True if its process is there, has been ready, and isn't about to end."""
        return self.child is not None and self.child.booted and self.state in BOOTED and not self.child.silent_at

    @property
    def waits(self) -> bool:
        """True if its process waits for Redis: it beats, and is not ready."""
        return self.child is not None and self.state is State.STARTING and self.child.beats_heard > 1

    @property
    def has_healed(self) -> bool:
        """True if its process has been ready for so long that earlier failures don't matter."""
        ready_at = self.child.ready_at if self.child is not None else None
        return ready_at is not None and time.monotonic() - ready_at >= self.history.healthy_after

    @property
    def why(self) -> str:
        """Why its last process ended."""
        words = WORDS[self.last_kind] if self.last_kind else ""
        if words and self.refusal:
            words = f"{words.partition(':')[0]}: {self.refusal}"
        return f"{self.last_exit}, {words}" if words else self.last_exit

    @property
    def joins(self) -> bool:
        """True if it is one more, and its first process boots: nothing is missing yet."""
        return self.is_added and not (self.ever_ready or self.failures)

    @property
    def is_over(self) -> bool:
        """True if it is empty and stays so, as it should."""
        return self.state is State.EXITED and not self.given_up

    def enter(self, state: State) -> bool:
        """The process is in this state, as it says; True when it has just become ready."""
        if self.state in {State.KILLED, State.EXITED}:
            return False
        if (self.leaving or self.replaced_for) and state not in {State.RETIRING, State.DRAINING}:
            return False
        self.state = state
        if self.child is None or self.child.booted or state not in BOOTED:
            return False
        self.ever_ready = True
        self.child.ready_at = time.monotonic()
        return True

    def another(self, why: str) -> Slot:
        """A temporary slot for a successor of its process."""
        return Slot(
            title=self.title,
            index=self.index,
            number=self.number,
            history=self.history,
            launch=self.launch,
            grace=self.grace,
            beside=self,
            last_exit=f"replaced: {why}",
        )

    def make_room(self, why: str, kill_at: float | None) -> None:
        """Its process is to end for a successor, by itself until `kill_at`."""
        self.replaced_for = why
        self.state = State.DRAINING if kill_at is not None else State.RETIRING
        self.kill_at = kill_at

    def runs(self) -> list[str]:
        """The shards whose jobs its process runs."""
        page = self.child.page if self.child is not None else None
        return sorted({batch.shard for batch in page.running() or ()}) if page is not None else []

    def swap(self, other: Slot) -> None:
        """Exchange processes with the other slot."""
        self.child, other.child = other.child, self.child
        self.state, other.state = other.state, self.state
        self.start_at, other.start_at = other.start_at, self.start_at
        self.kill_at, other.kill_at = other.kill_at, self.kill_at

    def revive(self, at: float) -> None:
        """Try it again, whatever was before."""
        self.given_up = False
        self.history.forget()
        self.schedule(at)

    def leave(self, kill_at: float) -> None:
        """It is to end for good, by itself until `kill_at`."""
        self.leaving = True
        self.start_at = None
        if self.child is None:
            self.state = State.EXITED
            return
        self.state = State.DRAINING
        self.kill_at = kill_at if self.kill_at is None else min(kill_at, self.kill_at)

    def exit(self, *, given_up: bool = False) -> None:
        """It is empty, and stays so."""
        self.state = State.EXITED
        self.start_at = None
        self.given_up = given_up


@dataclass(slots=True, kw_only=True)
class Slots:
    """All slots: nodes do the work; the web view shows it, and the embedded Redis keeps it, where they are wanted."""

    nodes: list[Slot] = field(default_factory=list)
    #: Slots beside those of nodes, while one process replaces another.
    temporary: list[Slot] = field(default_factory=list)
    #: Calls of the application's hooks, each a process.
    hooks: list[Slot] = field(default_factory=list)
    web: Slot | None = None
    redis: Slot | None = None
    #: Nodes are to take no new jobs, also those that are started later.
    quiet: bool = False
    #: Shared by all nodes.
    tree: TreePage = field(default_factory=TreePage)

    @property
    def all(self) -> list[Slot]:
        """Every slot, in the order in which they end."""
        return [*self.of_nodes, *self.hooks, *self.companions]

    @property
    def of_nodes(self) -> list[Slot]:
        """Every slot that holds a node's process."""
        return [*self.nodes, *self.temporary]

    @property
    def companions(self) -> list[Slot]:
        """The slots that end after the nodes, one by one: people watch nodes drain, and all need Redis to the end."""
        return [slot for slot in (self.web, self.redis) if slot is not None]

    @property
    def clients(self) -> list[Slot]:
        """Slots that run the application's code: they start when Redis answers, they beat, a restart renews them."""
        return [*self.nodes, *([self.web] if self.web is not None else [])]

    @property
    def beating(self) -> list[Slot]:
        """Slots whose processes beat."""
        return [*self.of_nodes, *([self.web] if self.web is not None else [])]

    @property
    def vital(self) -> list[Slot]:
        """Slots without which no jobs are done."""
        return [*self.nodes, *([self.redis] if self.redis is not None else [])]
