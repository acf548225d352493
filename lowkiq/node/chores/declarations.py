"""Declarations: what the code of nodes has to recur, where not all of them have the same."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

import msgspec

from lowkiq import clock
from lowkiq.admin.recurring import change_entry, note_change, read_all
from lowkiq.errors import LowkiqError
from lowkiq.job import KEPT_BYTES
from lowkiq.log import get_logger
from lowkiq.node.runtime import Runtime
from lowkiq.queue import keys
from lowkiq.queue.call import raise_first
from lowkiq.queue.recurring import Entry, Gone, Living, declare
from lowkiq.queue.shard import Shard, shards_of
from lowkiq.recurring import Declared

logger = get_logger()

#: Seconds between two words of a node that its code has entries; and after which one that is silent has none.
EVERY: Final = 60.0
LAPSE: Final = 200.0


class Declarations:
    """
    What a node's code declares of a queue. Of an entry that several nodes have otherwise, the code that was heard of
    last decides, among nodes that live; one that no such node has is removed. So a node of an older release, or of
    other code, that starts late takes nothing away. What people have set, paused and removed stays, until the code
    says something else of it than it did.
    """

    def __init__(self, runtime: Runtime, queue: str, rows: Sequence[Declared]) -> None:
        self._runtime, self._caller, self._queue, self._rows = runtime, runtime.caller, queue, rows
        self._digests = {row.job.id: _digest(_entry(row).text) for row in rows}
        self._digest = _digest(msgspec.msgpack.encode(sorted(self._digests.items())))
        self._key = keys.declared(runtime.namespace, queue)
        self._since = clock.monotonic()
        #: The declarations by which entries were set, and taken away, last.
        self._set_by: Sequence[Living] = ()
        self._removed_by: Sequence[Living] | None = None
        self._is_new = self._has_told = False

    def look(self) -> float | None:
        """
        Has the queue's entries be as they are to be. Raises RedisError; the first LowkiqError, when all others are set.

        Returns:
            when to look again (monotonic); None: never, as this node has nothing to say.
        """
        runtime, now = self._runtime, clock.monotonic()
        call = declare(runtime.namespace, self._queue, runtime.node, self._digest, [*self._digests], LAPSE)
        is_new, living = self._caller.run(call)
        if not living:
            return None
        shards = shards_of(runtime.namespace, {self._queue: runtime.layouts[self._queue]})
        if living != self._set_by:
            self._set(shards, living)
            self._set_by = living
        # Whoever starts again with code that was known may be the first of all nodes to do so.
        self._is_new, is_settled = self._is_new or is_new, now - self._since >= LAPSE
        if (self._is_new or is_settled) and living != self._removed_by:
            self._remove(shards, frozenset[bytes]().union(*(one.ids for one in living)))
            self._removed_by = living
        return now + EVERY if self._rows or not is_settled else None

    def leave(self) -> None:
        """Says that this node is gone. Raises RedisError."""
        self._caller.command("HDEL", self._key, f"n:{self._runtime.node}")

    def _set(self, shards: Sequence[Shard], living: Sequence[Living]) -> None:
        """Sets what no newer code of a living node decides."""
        own = next((one.since for one in living if one.digest == self._digest), 0.0)
        newer = [one for one in living if (one.since, one.digest) > (own, self._digest)]
        if newer and not self._has_told:
            self._has_told = True
            logger.warning(
                "recurring_older", queue=self._queue, node=self._runtime.node,
                advice="nodes with newer code live: theirs decides what recurs, and when",
            )  # fmt: skip
        decided = frozenset[bytes]().union(*(one.ids for one in newer))
        errors = list[LowkiqError]()
        for row in self._rows:
            try:
                if row.job.id not in decided:
                    self._set_row(shards, row)
            except LowkiqError as error:
                errors.append(error)
        raise_first(errors)

    def _set_row(self, shards: Sequence[Shard], row: Declared) -> None:
        id, digest = row.job.id, self._digests[row.job.id]
        made = msgspec.structs.replace(_entry(row), declared=digest)

        def change(known: Entry | None) -> Entry | None:
            if known is None:
                gone = self._gone(id)
                if gone.by_people and gone.declared == digest:
                    return None
                return msgspec.structs.replace(made, paused=gone.paused)
            if known.declared == digest:
                return known
            if known.origin == "api" and not known.declared:  # somebody was there before
                return msgspec.structs.replace(known, declared=digest)
            return msgspec.structs.replace(made, paused=known.paused)

        before, now = change_entry(self._caller, shards, id, change, by_people=False)
        if before is None or now is None or before == now:
            return
        if now.origin == "api":
            self._tell(id, f"stays as somebody has set it; in the code it is {row.rule.words}")
        elif (before.rule, before.payload) != (now.rule, now.payload):
            self._tell(id, f"is now {row.rule.words}, as the code has it")

    def _gone(self, id: bytes) -> Gone:
        (text,) = self._caller.read([("HGET", self._key, b"-" + id)], None)
        try:
            return msgspec.msgpack.decode(text, type=Gone) if text else Gone()
        except msgspec.MsgspecError:  # anybody may have written it
            return Gone()

    def _remove(self, shards: Sequence[Shard], ids: frozenset[bytes]) -> None:
        """Removes what the code of no living node has any more."""
        for job in read_all(self._caller, shards):
            id = job.id.encode("utf-8", KEPT_BYTES)
            if job.origin == "code" and id not in ids:
                before, now = change_entry(self._caller, shards, id, _gone_from_code, by_people=False)
                if before != now:
                    self._tell(id, "was removed: no node's code has it any more")

    def _tell(self, id: bytes, what: str) -> None:
        note_change(self._caller, self._runtime.namespace, self._queue, id, what, self._runtime.node)


def _entry(row: Declared) -> Entry:
    return Entry(row.rule, row.job.payload, "code", None, row.job.tenant)


def _digest(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=8).hexdigest().encode()


def _gone_from_code(known: Entry | None) -> Entry | None:
    return None if known is not None and known.origin == "code" else known
