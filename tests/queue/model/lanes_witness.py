"""LanesWitness: holds lanes, which are hints, against the queue; and counts how many pass a tenant by that is due."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from lowkiq.testing.model.shard_state import ShardState, TakenJob
from tests.queue.model.messages import Message

#: Jobs that may start before one of a tenant that is due: a few turns of three tenants and the queue itself.
PASS: Final = 10


class LanesWitness:
    """One history of one shard."""

    def __init__(self) -> None:
        #: Ids that were queued by a push that knows of no tenant, though they have one: no hint tells of them.
        self._untold: set[str] = set()
        self._passed: Counter[str] = Counter()

    def see(self, message: Message, reply: Any, before: ShardState, after: ShardState) -> None:
        """Raises AssertionError for a hint that is missing or wrong, and for a tenant that others pass by."""
        if message.script in {"push", "push_apart"} and after.senders != before.senders:  # it was applied
            self._untold |= {row[0] for row in message.rows if not row[5] and row[0] not in before.queued}
            self._untold -= {row[0] for row in message.rows if row[5]}
        self._untold &= after.queued.keys()
        for id, entry in after.queued.items():
            tenant = after.tenants.get(id)
            if tenant and not (entry.waits or entry.blocked):
                told = after.lanes.get(tenant, {}).get(id)
                was_moved = before.queued.get(id) != entry
                if told is not None and was_moved:
                    self._untold.discard(id)
                assert id in self._untold or told == entry.due, (
                    f"lanes: {id} of {tenant} is due {entry.due}, not {told}"
                )
        if message.script == "claim" and isinstance(reply, list) and reply:
            self._take_turns(reply, before)

    def _take_turns(self, reply: list[TakenJob], before: ShardState) -> None:
        """What is due no later than the last job taken was due, too, and could have been taken."""
        last = max(job[2] for job in reply)
        may_run = {id for id in before.due_by(last) if id not in before.claimed and id not in before.held}
        waiting = {before.tenants[id] for id in may_run & before.tenants.keys() - self._untold}
        taken = Counter(before.tenants.get(job[0], "") for job in reply)
        if before.crowds:  # suspects are claimed apart
            waiting = set()
        for tenant in self._passed.keys() - waiting:
            del self._passed[tenant]
        for tenant in waiting:
            self._passed[tenant] = 0 if tenant in taken else self._passed[tenant] + taken.total()
            assert self._passed[tenant] <= PASS, f"lanes: {tenant} was passed by {self._passed[tenant]} times"
