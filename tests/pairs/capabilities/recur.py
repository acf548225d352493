"""Recurring: each time of a job that recurs is fired once; none is forgotten while nobody could fire it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import msgspec

from lowkiq.admin.recurring import act, change_entry, set_by
from lowkiq.errors import BeingResharded
from lowkiq.queue.recurring import Entry, Fired, Firing, fire, firing
from lowkiq.recurrence import Rule
from tests.pairs.capability import Capability
from tests.pairs.jobs import SECOND, Lease

#: Ids that recur, and nobody pushes: what is queued of them was fired.
RECUR = ("r", "s")


class Recur(Capability):
    name = "recur"
    steps = {"set": 2, "remove": 1, "pause_or_resume": 1, "fire": 5, "wait": 3}  # noqa: RUF012

    def begin(self, random: Random) -> None:
        self.rules = {id: Rule(random.choice((2.0, 10.0)), missed="all") for id in RECUR}
        #: Ids that recur now, each with the time for which it is fired next; and the times for which it was fired.
        self.state = {"set": {}, "fired": {}, "paused": set()}

    def set(self, random: Random) -> None:
        id = random.choice(RECUR)
        if self._change(id, lambda: change_entry(
            self.world.caller, self.world.shards, id.encode(), set_by(self.rules[id], b"", "api")
        )) and id not in self.state["paused"]:  # fmt: skip
            self.state["set"].setdefault(id, self.rules[id].after(self.world.now / SECOND))

    def remove(self, random: Random) -> None:
        self._remove(random.choice(RECUR))

    def _remove(self, id: str) -> None:
        if self._change(id, lambda: act(self.world.caller, self.world.shards, id.encode(), "remove")):
            self.state["set"].pop(id, None)
            self.state["paused"].discard(id)

    def pause_or_resume(self, random: Random) -> None:
        id = random.choice(RECUR)
        if id in self.state["paused"]:
            if self._change(id, lambda: act(self.world.caller, self.world.shards, id.encode(), "resume")):
                self.state["paused"].discard(id)
                self.state["set"][id] = self.rules[id].after(self.world.now / SECOND)
        elif id in self.state["set"] and self._change(
            id, lambda: act(self.world.caller, self.world.shards, id.encode(), "pause")
        ):
            self.state["paused"].add(id)
            del self.state["set"][id]

    def _change(self, id: str, change: Callable[[], object]) -> bool:
        try:
            found = change()
        except BeingResharded as error:
            self.world.tell(f"{id} is not changed: {error}")
            return False
        self.world.tell(f"{id} is changed: {found}")
        return True

    def wait(self, random: Random) -> None:
        self.world.advance(random.choice((SECOND, 7 * SECOND)))

    def fire(self, random: Random) -> None:
        """An owner fires what is due, maybe twice."""
        if self.world.leases:
            lease = random.choice(list(self.world.leases.values()))
            self._fire(lease, times=random.choice((1, 1, 2)))

    def _fire(self, lease: Lease, times: int = 1) -> bool:
        found = self.world.run(firing(lease.shard))
        if not isinstance(found, Firing) or not found.due:
            return False
        entries = []
        for due in found.due:
            rule = Entry.parse(due.text).rule
            at = rule.due(float(due.expected), found.now)
            entries.append(Fired(due, rule.after(found.now), [(msgspec.json.encode({"due": one}), one) for one in at]))
        result = self.world.run(fire(lease.shard, *lease.owner, entries))
        times_of = {one.due.id: [at for _, at in one.payloads] for one in entries}
        self.world.tell(f"{lease.node} fires {times_of}: {result}")
        if not isinstance(result, Firing):
            self.world.lose(lease)
            return False
        for _ in range(times - 1):
            self.world.run(fire(lease.shard, *lease.owner, entries))
        for entry in entries:
            self._fired(entry)
        return True

    def _fired(self, entry: Fired) -> None:
        id = entry.due.id.decode()
        expected = self.state["set"].get(id)
        assert expected is not None, f"recur: {id} is fired, and does not recur"
        if self.world.is_clock_steady:
            assert float(entry.due.expected) == expected, (
                f"recur: {id} is fired for {entry.due.expected!r}, not {expected}"
            )
        known = self.state["fired"].setdefault(id, set())
        for payload, at in entry.payloads:
            assert at not in known or not self.world.is_clock_steady, f"recur: {id} is fired twice for {at}"
            known.add(at)
            self.world.book.pushed(id, payload, at)
        self.state["set"][id] = entry.following

    def heal(self) -> None:
        """What has come is fired; then nothing recurs any more."""
        for lease in list(self.world.leases.values()):
            self._fire(lease)
        for id in RECUR:
            self._remove(id)

    def left(self) -> list[str]:
        return ["recur_last"]
