"""World: a queue with its producers, nodes, people and clock, who use the real calls; its book has what happened."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any

from lowkiq.errors import BeingResharded
from lowkiq.job import EncodedJob
from tests.pairs.capability import Capability
from tests.pairs.ground import REFUSALS
from tests.pairs.jobs import IDS, SECOND, Row, shown
from tests.pairs.nodes import Nodes
from tests.pairs.rig import Rig

#: Steps between two looks at all that Redis holds.
LOOK_EVERY = 8


class World(Nodes):
    """What a history is played in."""

    #: The steps that every history has, and how often they come.
    steps = {"push": 6, "claim": 7, "settle": 6, "tick": 1}  # noqa: RUF012 (as capabilities have them)

    def __init__(self, rig: Rig, kinds: Sequence[type[Capability]], random: Random, *, is_equal_last: bool) -> None:
        super().__init__(rig, kinds, is_equal_last=is_equal_last)
        self.capabilities = [kind(self, random) for kind in kinds]

    # ── producers ───────────────────────────────────────────────────────────────────────────────────────────────────

    def new_row(self, random: Random, id: str = "") -> Row:
        self._serial += 1
        row = Row(id or random.choice(IDS), b"%d" % self._serial)
        for capability in self.capabilities:
            capability.dress(row, random)
        return row

    def push(self, random: Random) -> None:
        self.push_rows([self.new_row(random)])

    def push_rows(self, rows: list[Row], push: Callable[[list[EncodedJob]], object] | None = None) -> None:
        """Pushes them as a producer does, or by `push`."""
        try:
            (push or self.producer.push)([row.job for row in rows])
        except REFUSALS as error:
            raise AssertionError(f"push of {rows} was refused: {error!r}") from error
        self.tell(f"push {', '.join(shown(row) for row in rows)}")
        self.accept(rows)

    def accept(self, rows: Iterable[Row]) -> None:
        for row in rows:
            record = self.book.of(row.id)
            row.was_queued, row.was_claimed = bool(record.queued), bool(record.claimed)
            record.throttle = row.throttle or record.throttle
            self.book.pushed(row.id, row.payload, row.score, row.keep)
            for capability in self.capabilities:
                capability.on_pushed(row)

    # ── people ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def act(self, action: str, view: str, ids: Sequence[str]) -> bool:
        """Does something to ids. False: they were on their way between shards, and it was refused."""
        try:
            count = self.actions.act(action, view, ids)
        except BeingResharded as error:
            assert len(ids) == 1, "of several some may have been told of before it is refused"
            self.tell(f"{action} {view} {ids}: {error}")
            return False
        self.tell(f"{action} {view} {ids}: {count}")
        return True

    def moved(self, id: str, how: str) -> None:
        for capability in self.capabilities:
            capability.on_moved(id, how)

    def left(self, id: str, how: str) -> None:
        for capability in self.capabilities:
            capability.on_left(id, how)

    # ── time ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def tick(self, random: Random) -> None:
        self.advance(random.choice((1, 1_000, 50_000, SECOND, 5 * SECOND, 40 * SECOND)))

    def advance(self, by: int) -> None:
        self.clock.step(by)

    # ── failovers ───────────────────────────────────────────────────────────────────────────────────────────────────

    def snapshot(self) -> tuple[Any, ...]:
        """All of Redis, and what is known of it."""
        states = [copy.deepcopy(one.state) for one in self.capabilities]
        return self.rig.dump(), copy.deepcopy(self.book), states, self.layout

    def restore(self, snapshot: tuple[Any, ...]) -> None:
        """What has happened since is lost."""
        dump, self.book, states, self.layout = snapshot
        self.book = copy.deepcopy(self.book)
        self.rig.restore(dump)
        self.caller.failovers += 1
        self.has_failed_over = True
        self.sent = []  # what came to the old primary does not come to the new one
        for one, state in zip(self.capabilities, states, strict=True):
            one.state = copy.deepcopy(state)
        for one in self.capabilities:
            one.on_failover()
