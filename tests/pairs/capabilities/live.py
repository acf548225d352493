"""Live settings: people change options while all runs; nodes follow with their next claim."""

from __future__ import annotations

from random import Random
from typing import Any

from lowkiq.admin.live import read_live, set_live, unset_live
from tests.pairs.capability import Capability
from tests.pairs.jobs import QUEUE, Hand
from tests.pairs.rig import NAMESPACE


class Live(Capability):
    name = "live"
    steps = {"set": 3, "unset": 1}  # noqa: RUF012

    def begin(self, random: Random) -> None:
        self.state = {"set": {}}

    def set(self, random: Random) -> None:
        values: dict[str, Any] = {"batch_size": random.randint(1, 3), "concurrency": random.randint(1, 4)}
        name = random.choice(sorted(values))
        set_live(self.world.caller, NAMESPACE, QUEUE, {name: values[name]}, "who")
        self.state["set"][name] = values[name]
        self.world.tell(f"set {name} = {values[name]}")

    def unset(self, random: Random) -> None:
        name = random.choice(("batch_size", "concurrency"))
        unset_live(self.world.caller, NAMESPACE, QUEUE, [name], "who")
        self.state["set"].pop(name, None)
        self.world.tell(f"unset {name}")

    def _known(self) -> dict[str, Any]:
        found = read_live(self.world.caller, NAMESPACE).get(QUEUE, {})
        return {name: setting.value for name, setting in found.items()}

    def limit(self, random: Random) -> tuple[int | None, int | None]:
        return self._known().get("batch_size"), None

    def may_claim(self, node: str) -> bool:
        if self.world.is_working_off:
            return True
        most = self._known().get("concurrency")
        return most is None or sum(hand.lease.node == node for hand in self.world.hands()) < most

    def on_started(self, hand: Hand, id: str) -> None:
        if not self.world.is_working_off and (most := self.state["set"].get("batch_size")):
            assert len(hand.jobs) <= most, f"live: a claim of {len(hand.jobs)} jobs, {most} were set"

    def check(self) -> None:
        assert self._known() == self.state["set"], f"live: {self._known()} are set, not {self.state['set']}"
