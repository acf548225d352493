"""Hold: an id does not start until somebody lets it go; a run of it is finished."""

from __future__ import annotations

from random import Random

from tests.pairs.capability import Capability
from tests.pairs.jobs import IDS, Hand


class Hold(Capability):
    name = "hold"
    steps = {"hold": 3, "let_go": 3}  # noqa: RUF012

    def begin(self, random: Random) -> None:
        self.state = {"held": set()}

    def hold(self, random: Random) -> None:
        for id in random.sample(IDS, random.randint(1, 2)):
            if self.world.act("hold", "due", [id]):
                self.state["held"].add(id)

    def let_go(self, random: Random) -> None:
        if self.state["held"]:
            self._let_go(random.choice(sorted(self.state["held"])))

    def _let_go(self, id: str) -> None:
        if self.world.act("release", "held", [id]):
            self.state["held"].discard(id)

    def on_started(self, hand: Hand, id: str) -> None:
        assert id not in self.state["held"], f"hold: {id} starts"

    def reason(self, id: str) -> str:
        return "held" if id in self.state["held"] else ""

    def free(self) -> None:
        for id in sorted(self.state["held"]):
            self._let_go(id)
