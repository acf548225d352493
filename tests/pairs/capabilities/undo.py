"""Undo: a deletion is taken back, and all is as if it had only been in hand."""

from __future__ import annotations

from random import Random

from lowkiq.errors import BeingResharded
from tests.pairs.capability import Capability
from tests.pairs.jobs import IDS


class Undo(Capability):
    name = "undo"
    steps = {"delete": 3, "put_back": 3}  # noqa: RUF012

    def begin(self, random: Random) -> None:
        self.state = {"names": []}

    def delete(self, random: Random) -> None:
        view, id = random.choice(("due", "due", "morgue")), random.choice(IDS)
        try:
            deleted = self.world.actions.delete_and_keep(view, [id])
        except BeingResharded:
            return
        self.world.tell(f"delete and keep {view} {id}: {deleted}")
        self.world.book.deleted(id, "queue" if view == "due" else view, deleted.undo or "none")
        self.world.left(id, f"kept {deleted.undo}")
        if deleted.undo:
            self.state["names"].append(deleted.undo)

    def put_back(self, random: Random) -> None:
        if self.state["names"]:
            name = random.choice(self.state["names"])
            try:
                count = self.world.actions.undo(name)
            except BeingResharded:
                return
            self.world.tell(f"put back {name}: {count}")
            self.state["names"].remove(name)
            for id in IDS:
                if name in self.world.book.of(id).kept:
                    self.world.book.put_back(id, name)
                    self.world.moved(id, f"kept {name}")

    def left(self) -> list[str]:
        return ["undo", "undo_waits"]  # they lapse
