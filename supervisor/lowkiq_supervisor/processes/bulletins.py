"""
Bulletins: what nodes are told through their shared pages: which nodes are dead, what people should know, what has
happened, and what becomes of what they have asked for.

A node that knows of a death takes the dead one's shards at once, instead of waiting for leases to run out; the notices
travel with its heartbeat, since the supervisor has no Redis.
"""

from __future__ import annotations

import time
from collections import deque

from lowkiq.shared_page import Answer, Bulletin, DeadNode, Event
from lowkiq_supervisor.processes.slots import Slot

#: Seconds for which other slots' nodes are told of a death: a lease is over by then, or long since taken.
REMEMBERED = 60.0
#: Deaths that are told of at a time: every try for a shard names them all.
MOST_DEAD = 32


class Bulletins:
    """Writes each running node's page when it has changed."""

    def __init__(self) -> None:
        self._dead: deque[tuple[float, DeadNode]] = deque(maxlen=MOST_DEAD)
        self.notices: tuple[str, ...] = ()
        self.events: tuple[Event, ...] = ()
        self.answers: tuple[Answer, ...] = ()
        self.nodes = 0

    def died(self, dead: DeadNode) -> None:
        """A node has died, whoever of the others may stand in for it."""
        self._dead.append((time.monotonic() + REMEMBERED, dead))

    def of(self, slot: Slot) -> Bulletin:
        """The bulletin of a node here: the last deaths in its place, whenever they were, and recent ones of others."""
        own = tuple((slot.beside or slot).dead_nodes)
        dead = (*own, *(dead for dead in self.recent if dead not in own))
        return Bulletin(dead, self.notices, self.events, self.answers, self.nodes)

    @property
    def recent(self) -> list[DeadNode]:
        now = time.monotonic()
        return [dead for until, dead in self._dead if until > now]

    def publish(self, slots: list[Slot]) -> None:
        """Tell running nodes what is news to them."""
        for slot in slots:
            child = slot.child
            if child is not None and child.page is not None and child.told != (bulletin := self.of(slot)):
                child.page.write_bulletin(bulletin)
                child.told = bulletin
