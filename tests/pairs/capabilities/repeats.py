"""Repeats: a call whose reply was lost is sent again, at once or late: it changes nothing more."""

from __future__ import annotations

from random import Random
from typing import Any

from lowkiq.queue import scripts
from tests.pairs.capability import Capability

#: What may change all the same: counters of pushes that were merged, and whom to ring.
MAY_CHANGE = {"owner": {"waiting", "until"}, "meta": {"merged", "pushed", "last_score"}}
#: Who asks twice is told twice, which does no harm.
OF_LETTERS = {"meta", "letters", "outbox", "waiters"}
#: Calls of which that holds.
ONCE = frozenset({"push", "push_apart", "settle", "finish", "release", "claim", "receive", "fire"}) | {
    name for name, script in scripts.load(flags=False).items() if script.is_once
}


class Repeats(Capability):
    name = "repeats"
    steps = {"repeat": 6}  # noqa: RUF012

    def repeat(self, random: Random) -> None:
        calls = [call for call in self.world.sent if call.script in ONCE]
        if not calls:
            return
        call = random.choice(calls[-4:] if random.random() < 0.6 else calls)
        before = self._keys()
        caller = self.world.caller
        (result,) = super(type(caller), caller).run_all([call])  # nobody hears of it
        self.world.tell(f"again: {call.script} {call.arguments}: {result!r}"[:300])
        after = self._keys()
        changed = sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
        if call.script == "receive" and b"ask" in call.arguments:
            changed = [key for key in changed if key.partition("}:")[2].partition(":")[0] not in OF_LETTERS]
        assert not changed, f"I5: {call.script}, which came again, has changed {changed}"

    def _keys(self) -> dict[str, Any]:
        return {
            shard.prefix + name: _told(name, kind, value)
            for shard, look in zip(self.world.shards, self.world.looks(), strict=True)
            for name, (kind, value) in look.keys.items()
        }


def _told(name: str, kind: bytes, value: list[bytes]) -> Any:
    """What a key holds, but for what may change."""
    if kind == b"hash":
        pairs = zip(value[::2], value[1::2], strict=True)
        return {field: each for field, each in pairs if field.decode() not in MAY_CHANGE.get(name, ())}
    return set(value) if kind == b"set" else value
