"""Delete: what is queued, or dead, of an id is gone; a run of it goes on."""

from __future__ import annotations

from random import Random

from tests.pairs.capability import Capability
from tests.pairs.jobs import IDS


class Delete(Capability):
    name = "delete"
    steps = {"delete": 3, "delete_dead": 1}  # noqa: RUF012

    def delete(self, random: Random) -> None:
        self._delete("queue", "due", random.choice(IDS))

    def delete_dead(self, random: Random) -> None:
        self._delete("morgue", "morgue", random.choice(IDS))

    def _delete(self, which: str, view: str, id: str) -> None:
        if self.world.act("delete", view, [id]):
            self.world.book.deleted(id, which)
            self.world.left(id, "deleted")
