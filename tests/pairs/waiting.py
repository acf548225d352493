"""Waiting: the judgement of what runs after others: not while anything is left of these."""

from __future__ import annotations

from random import Random

from tests.pairs.following import Following
from tests.pairs.jobs import Hand

#: How that comes back which a person has taken away; the rest does as it is called.
BACK = {"buried": "revived"}


class Waiting(Following):
    """Id → the others of which there was always something since it waits for them."""

    name = ""

    def begin(self, random: Random) -> None:
        super().begin(random)
        #: And all that it has named since it ran: what comes to these before they are asked is waited for, too.
        self.state = {"waits": {}, "kept": {}, "named": {}}

    def wait_for(self, id: str, others: set[str]) -> None:
        self.state["waits"].setdefault(id, set()).update(others)
        self.state["named"].setdefault(id, set()).update(others)
        self.look()

    def look(self) -> None:
        """Nobody waits any more for those that are gone, also where word of that comes once it is back itself."""
        kept = [others for (name, *_), others in self.state["kept"].items() if name == "waits"]
        for others in [*self.state["waits"].values(), *kept]:
            others -= {one for one in others if one in self.world.book.records and self.world.book.of(one).is_idle}
            others -= {one for one in others if one not in self.world.book.records and not one.startswith(":")}

    def on_started(self, hand: Hand, id: str) -> None:
        self.look()
        left = self.state["waits"].get(id)
        assert not left, f"after: {id} starts before {sorted(left)}"  # type: ignore[arg-type]
        self.state["waits"].pop(id, None)
        self.state["named"].pop(id, None)

    def on_over(self, id: str, how: str) -> None:
        self.look()

    def on_left(self, id: str, how: str) -> None:
        """Deleted, it waits no more; put back, or revived, it does."""
        self.look()
        if not self.world.book.of(id).queued:
            for name in ("waits", "named"):
                others = self.state[name].pop(id, set())
                self.state["kept"].setdefault((name, id, BACK.get(how, how)), set()).update(others)

    def on_moved(self, id: str, how: str) -> None:
        for name in ("waits", "named"):
            if others := self.state["kept"].pop((name, id, how), None):
                self.state[name].setdefault(id, set()).update(others)
        self.look()

    def reason(self, id: str) -> str:
        self.look()
        records = self.world.book.records
        there = {one for one in self.state["named"].get(id, ()) if one in records and not records[one].is_idle}
        left = sorted(self.state["waits"].get(id, set()) | there)
        return f"waits for {left}" if left else ""

    def free(self) -> None:
        """What is dead is deleted, so that nobody waits for it."""
        for id, record in self.world.book.records.items():
            if record.morgue and self.world.act("delete", "morgue", [id]):
                self.world.book.deleted(id, "morgue")
                self.world.left(id, "deleted")
