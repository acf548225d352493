"""Capability: what one of them adds to a history: settings, steps, and its own judgement of what happens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar

from lowkiq.queue.letters import Letter
from lowkiq.queue.shard import Outcome

if TYPE_CHECKING:
    from tests.pairs.jobs import Hand, Row
    from tests.pairs.world import World


class Capability:
    """
    One file each, in capabilities/. A history has one object of each capability that it uses.

    Everything that changes within a history is in `state`, so that a failover can take it back.
    """

    name: ClassVar[str]
    #: Methods of it that are steps, each given a Random of its own, and how often they come; the world's are 20.
    steps: ClassVar[Mapping[str, int]] = {}
    #: What else may become of a job in hand, and how often; `ack` has 10.
    fates: ClassVar[Mapping[str, int]] = {}
    #: True if it moves Redis's clock back: then nobody can say when something is due.
    sets_clock_back: ClassVar[bool] = False

    #: Which ones heal first, as others need that.
    heals: ClassVar[int] = 1

    def __init__(self, world: World, random: Random) -> None:
        self.world = world
        self.state: dict[str, Any] = {}
        self.begin(random)

    def begin(self, random: Random) -> None:
        """Chooses the settings of this history."""

    def dress(self, row: Row, random: Random) -> None:
        """Adds to a job that is about to be pushed."""

    def limit(self, random: Random) -> tuple[int | None, int | None]:
        """How many jobs a claim takes, and payloads of each; None as ever."""
        return None, None

    def on_round(self) -> None:
        """Claims are about to be made, of which each node is asked whether it may."""

    def may_claim(self, node: str) -> bool:
        """Whether this node asks for jobs now."""
        return True

    def decide(self, fate: str, hand: Hand, id: str, outcome: dict[str, list[Any]], random: Random) -> None:
        """Adds the outcome of a job with one of its `fates`."""

    def letters(self, hand: Hand, id: str) -> Iterable[bytes]:
        """What follows from a job that is done."""
        return ()

    # ── what has happened ───────────────────────────────────────────────────────────────────────────────────────────

    def on_pushed(self, row: Row) -> None:
        """A push was accepted."""

    def on_started(self, hand: Hand, id: str) -> None:
        """A job was claimed. Raises AssertionError if it may not run now."""

    def on_claimed(self, node: str, hand: Hand | None) -> None:
        """A node has claimed something, or found nothing."""

    def on_ended(self, hand: Hand, outcome: Outcome) -> None:
        """What was told of a claim has been settled."""

    def on_over(self, id: str, how: str) -> None:
        """A run is over: acked, returned (to the queue as it was), failed, ended …"""

    def on_moved(self, id: str, how: str) -> None:
        """Something, or somebody, has made an id due at another time than it was."""

    def on_received(self, some: Sequence[Letter]) -> None:
        """Letters have arrived, these together."""

    def on_left(self, id: str, how: str) -> None:
        """What was queued of an id was taken away by a person: deleted, buried …"""

    def on_failover(self) -> None:
        """Redis goes on with what it had; nodes and programs, which know what they do, have noticed."""

    # ── the end ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def heal(self) -> None:
        """What is broken, or under way, comes to its end."""

    def work(self) -> bool:
        """A part of what is done until nothing is left to do. True: it has done something."""
        return False

    def reason(self, id: str) -> str:
        """Why something of an id stays queued, however long one waits."""
        return ""

    def free(self) -> None:
        """Whoever stops anything lets it go."""

    def left(self) -> Iterable[str]:
        """Names of keys of a shard that may be left when nothing of any id is."""
        return ()

    def check(self) -> None:
        """Raises AssertionError if something does not hold now."""
