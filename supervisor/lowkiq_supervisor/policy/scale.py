"""
Scale: how many nodes there are to be, and what it takes that there are as many.

The goal is moved by the load, within the range of --nodes, or by a person. Then slots are added, or the highest ones
go: a node that goes drains as at TERM, while the others take its shards and run on. A slot whose process is just being
replaced goes when that is over.

Numbered nodes can't be scaled: who has which shards follows from how many there are, here and on other machines.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any

from lowkiq.log import get_logger
from lowkiq_supervisor.errors import CommandRefused
from lowkiq_supervisor.options import Options
from lowkiq_supervisor.parsing import MOST_NODES
from lowkiq_supervisor.policy.load import Load, Told
from lowkiq_supervisor.policy.replacement import Replacement
from lowkiq_supervisor.policy.shutdown import Shutdown
from lowkiq_supervisor.processes.slots import Slot, Slots

#: In place of a number: by the load again.
BY_LOAD = "auto"

log = get_logger("supervisor")


class Scale:
    """
    Keeps as many nodes as there are to be. What a person says holds until another word, or until the supervisor ends.

    Args:
        make: makes the slot of one node more, by its place.
    """

    def __init__(
        self,
        options: Options,
        slots: Slots,
        shutdown: Shutdown,
        replacement: Replacement,
        make: Callable[[int], Slot],
        load: Load | None = None,
    ) -> None:
        self._options, self._slots = options, slots
        self._shutdown, self._replacement = shutdown, replacement
        self._make = make
        self._load = load or Load()
        self._range = options.node_range
        self.goal = len(slots.nodes)
        #: The reason of the last change.
        self.why = ""
        #: A person has named the goal: the load doesn't move it.
        self.is_pinned = False

    # ── what is asked for ───────────────────────────────────────────────────────────────────────────────────────────

    def ask(self, nodes: object) -> dict[str, Any]:
        """A person wants so many nodes, or "auto". Returns the answer; raises CommandRefused."""
        before = self.goal
        if self._shutdown.draining:
            raise CommandRefused("the supervisor is draining: nothing is scaled")
        if nodes == BY_LOAD:
            if self._range is None:
                raise CommandRefused("scale auto: there is no range to go by the load in, such as --nodes 2..8")
            self.is_pinned = False
        else:
            goal = self._allowed(nodes)
            self.is_pinned = self._range is not None
            self._aim_at(goal, "asked to scale")
        return {"ok": True, "before": before, "goal": self.goal, "by_load": self._goes_by_load}

    def _allowed(self, nodes: object) -> int:
        options, bounds = self._options, self._range
        if type(nodes) is not int or not 1 <= nodes <= MOST_NODES:
            raise CommandRefused(f"scale {nodes!r}: give a number from 1 to {MOST_NODES:,}, or auto")
        if not options.is_elastic:
            raise CommandRefused(
                "the nodes here are numbered (NODE_NUMBER, NUMBER_OF_NODES): each number has a fixed part of the "
                "shards, so how many there are can't change. Unset both on every machine and restart, and the nodes "
                "share the shards by themselves; or change NUMBER_OF_NODES and --nodes everywhere"
            )
        if options.burst:
            raise CommandRefused("with --burst every node ends by itself: start it again with other --nodes")
        if any(slot.child is not None and slot.child.has_splitter for slot in self._slots.nodes):
            raise CommandRefused(
                "the application's build_splitter deals the shards to a fixed number of nodes: leave it out, or start "
                "the supervisor again with other --nodes"
            )
        if bounds is not None and not bounds.least <= nodes <= bounds.most:
            raise CommandRefused(
                f"scale {nodes} is outside of --nodes {bounds.text}: start the supervisor again with another range"
            )
        return nodes

    # ── what happens ────────────────────────────────────────────────────────────────────────────────────────────────

    def advance(self) -> None:
        """Go by the load, and do what is left to do."""
        if self._shutdown.draining:
            return
        if self._goes_by_load:
            self._follow_load()
        self._add()
        self._send_away()

    def deadlines(self) -> list[float]:
        """The time of the next look; a node that is away, or being replaced, tells when it is back."""
        return [self._load.next_look_at] if self._goes_by_load and self._is_settled() else []

    @property
    def _goes_by_load(self) -> bool:
        return self._range is not None and not self.is_pinned and not self._shutdown.draining

    def _is_settled(self) -> bool:
        """True if all nodes are there, and none of them is on its way out: then what they tell is the whole load."""
        nodes, replacement = self._slots.nodes, self._replacement
        is_changing = replacement.current is not None or replacement.is_rolling or self._slots.quiet
        return not is_changing and len(nodes) == self.goal and all(slot.works for slot in nodes)

    def _follow_load(self) -> None:
        if not self._is_settled():
            self._load.forget()
        elif self._range is not None and self._load.next_look_at <= time.monotonic():
            beats = [slot.child.last_beat for slot in self._slots.nodes if slot.child is not None]
            told = [Told(beat.full / 1000, beat.late / 1000) for beat in beats]
            if step := self._load.look(told, self._range.least, self._range.most):
                self._aim_at(self.goal + step.by, step.why)

    def _aim_at(self, goal: int, why: str) -> None:
        self._load.forget()
        if goal != self.goal:
            log.info("scaling", before=self.goal, to=goal, why=why)
            self.goal, self.why = goal, why

    def _add(self) -> None:
        while len(self._slots.nodes) < self.goal:
            slot = self._make(len(self._slots.nodes))
            slot.is_added = True
            self._slots.nodes.append(slot)
            if self._slots.redis is None or self._slots.redis.works:
                slot.schedule(time.monotonic())  # else it waits with the others

    def _send_away(self) -> None:
        while len(self._slots.nodes) > self.goal:
            slot = self._slots.nodes[-1]
            if slot is self._replacement.current:
                return
            self._slots.nodes.pop()
            slot.is_surplus = True
            if slot.child is not None:
                self._slots.temporary.append(slot)
                log.info("sent_away", slot=slot.title, pid=slot.child.pid, node=slot.child.name or None, why=self.why)
                slot.child.send(signal.SIGTERM)
            slot.leave(time.monotonic() + slot.grace)

    def as_json(self) -> dict[str, Any]:
        """What `status` tells."""
        bounds = self._range
        return {
            "goal": self.goal,
            "range": None if bounds is None else [bounds.least, bounds.most],
            "by_load": self._goes_by_load,
            "why": self.why or None,
        }
